#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/launch/run_processes.h"

// One command, several ranks: the program starts itself once per rank of this machine, and supervises.

namespace athanor::dist {

/// Checks a number of ranks for the CPU of this machine. Returns a warning, or "". Throws ArgumentError from
/// 33 per core on, and if they have less than 64 MiB of memory each.
std::string check_ranks(int ranks);
/// The same for given cores and bytes; 0 bytes: unknown.
std::string check_ranks(int ranks, int cores, std::uintmax_t memory);

/// A command that starts `ranks` copies of this program with these arguments (argv[1] on) by mpirun, with
/// settings for shared cores. Throws BackendError if there is no mpirun, no folder with room for shared
/// memory, or too few threads or open files.
Command with_mpirun(int ranks, const std::vector<std::string>& arguments);

/// Commands for separate processes, one per GPU. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT and ATHANOR_JOB identify them; ATHANOR_SECRET, newly drawn, authenticates them. Rank 0
/// inherits a socket listening at that port, whose descriptor is in ATHANOR_LISTENING: RankInfo::listening.
std::vector<Command> one_per_gpu(int ranks, const std::vector<std::string>& arguments);

/// Whether this process is a rank that with_mpirun() or one_per_gpu() has started.
bool started_by_devices();
/// Called by a rank first: makes it die with its launcher, after with_mpirun() or one_per_gpu().
void die_with_launcher();
/// Whether the launcher writes to a terminal. (For mpirun's ranks, isatty() is always true.)
bool launcher_has_terminal();

}  // namespace athanor::dist
