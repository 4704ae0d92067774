#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/launch/run_processes.h"

// One command, several ranks: the program starts itself again, once per rank of this machine, and watches.

namespace athanor::dist {

/// Whether so many ranks on the CPU of this machine make sense. Returns a warning, or nothing. Throws
/// ArgumentError from 33 per core on, and where they have less than 64 MiB of memory each.
std::string check_ranks(int ranks);
/// The same for so many cores and bytes; 0 bytes: not known.
std::string check_ranks(int ranks, int cores, std::uintmax_t memory);

/// `ranks` copies of this program with these arguments (argv[1] on), through mpirun, with settings for cores
/// that are shared. Throws BackendError where there is no mpirun, and where
/// no folder has room for what ranks share.
Command with_mpirun(int ranks, const std::vector<std::string>& arguments);

/// The same as processes of our own, one per GPU: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT and ATHANOR_JOB say who they are, and ATHANOR_SECRET, drawn for them, that they
/// are. Rank 0 inherits a socket that listens at that port, whose number is in ATHANOR_LISTENING:
/// RankInfo::listening.
std::vector<Command> one_per_gpu(int ranks, const std::vector<std::string>& arguments);

/// Called by a rank: dies with who has started it, where that was with_mpirun() or one_per_gpu().
void die_with_launcher();
/// Whether the launcher writes to a terminal. (mpirun's ranks all believe they do.)
bool launcher_has_terminal();

}  // namespace athanor::dist
