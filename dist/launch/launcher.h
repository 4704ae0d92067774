#pragma once

#include <chrono>
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

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> arguments = {};  ///< of this program, argv[1] on
  /// One per GPU, which NCCL connects: rank 0 inherits a listening socket (ATHANOR_LISTENING), at which ranks
  /// meet with a secret drawn for them. Otherwise all inherit a RankMemory (ATHANOR_SHARED_MEMORY).
  bool nccl = false;
  std::chrono::milliseconds end_within{300'000};  ///< RunOptions::end_within
  int restarts = 0;                               ///< see run_with_restarts()
};

/// Starts this program once per rank, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and ATHANOR_JOB,
/// and returns the exit code of run_processes(). Throws BackendError if the machine lacks a requirement.
int launch(const LaunchOptions& options);

/// Whether a job that ended with this exit code has lost a rank, so that a second start, from a checkpoint,
/// may succeed: 74 (a rank was lost or did not respond), or 128 + SIGKILL, SIGSEGV or SIGBUS. Wrong
/// arguments, a diverged run and a signal that was meant for the job would only repeat.
bool has_lost_rank(int exit_code);

/// Runs a job by `start`, which returns its exit code. While that is the code of a lost rank, and the job was
/// not told to end meanwhile, starts it again, at most `restarts` times, each announced by one line on
/// stderr. Returns the last exit code.
int run_with_restarts(int restarts, const bool& told_to_end, const std::function<int()>& start);

}  // namespace athanor::dist
