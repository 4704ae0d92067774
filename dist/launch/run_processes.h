#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace athanor::dist {

/// A process to be started.
struct Command {
  std::vector<std::string> arguments;      ///< the program first; looked for in PATH
  std::vector<std::string> environment;    ///< "NAME=value", besides what this process has
  int rank = -1;                           ///< -1: mpirun, whose children are the ranks
  int inherited = -1;                      ///< a file descriptor it is given
  std::shared_ptr<const void> keeps = {};  ///< what it needs as long as it runs
};

struct RunOptions {
  /// How long ranks may take to end after the first signal: for the step under way, and a checkpoint.
  std::chrono::milliseconds end_within{300'000};
  bool show_all = false;  ///< every line of mpirun's own, as it comes
};

/// Runs them until all have ended. The first SIGINT, SIGTERM or SIGHUP is passed on to every rank, also to
/// one that starts later, so that they can save; ranks that are still there after `end_within` are killed,
/// with one line on stderr and exit code 74. A second SIGINT or SIGTERM kills at once. A signal that this
/// process ignores is left alone. SIGUSR1 is passed on, and ends nothing. Ctrl-Z (SIGTSTP) stops the ranks,
/// and SIGCONT to this process lets them go on. When a rank fails, the others are told to end, and killed
/// after some seconds. Lines on a rank's stderr get "rank N: " in front, unless they have it; what mpirun
/// says of its own is one line, and only where no rank has said why. No process is left behind: children are
/// in process groups of their own, die with this process, and grandchildren come to it. Returns the first
/// exit code that was not 0 (128 + signal where one ended it; 3 where mpirun itself failed), or 0. Throws
/// BackendError where a process cannot be started.
int run_processes(const std::vector<Command>& commands, const RunOptions& options = {});

}  // namespace athanor::dist
