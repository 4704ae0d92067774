#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace athanor::dist {

/// A rank's process.
struct Command {
  std::vector<std::string> arguments;    ///< the program first, found by PATH
  std::vector<std::string> environment;  ///< "NAME=value", added to this process's environment
  std::vector<int> inherited = {};       ///< file descriptors it inherits
};

struct RunOptions {
  /// Time for ranks to end after the first signal: the current step, and a checkpoint.
  std::chrono::milliseconds end_within{300'000};
  /// Called when a rank has ended while others run, with 128 + signal if a signal ended it; but not if that
  /// was the one that was passed on, or if the rank gave up waiting for another (74).
  std::function<void(int rank, int exit_code)> on_end = {};
  /// Called when the first signal to end is passed on.
  std::function<void()> on_signal = {};
};

/// Runs a process for each rank until all have ended. The first SIGINT, SIGTERM or SIGHUP is passed on to
/// every rank, so that they can save. Ranks still running after `end_within` are killed, with one line on
/// stderr and exit code 74. A second SIGINT or SIGTERM kills at once. A signal that this process ignores
/// stays ignored. SIGUSR1 is passed on, and ends nothing: ranks ignore it until they handle it. Ctrl-Z
/// (SIGTSTP) stops the ranks, and SIGCONT to this process continues them. When a rank fails, the others are
/// told to end, and killed after some seconds. Lines on stderr get the prefix "rank N: ", unless they have it
/// or come from rank 0. No process is left behind: ranks have their own process groups and die with this
/// process. Returns the first nonzero exit code (128 + signal if a signal ended it), or 0. Throws
/// BackendError if a process cannot be started.
int run_processes(const std::vector<Command>& commands, const RunOptions& options = {});

}  // namespace athanor::dist
