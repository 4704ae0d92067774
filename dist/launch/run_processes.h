#pragma once

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

/// Runs them until all have ended. Signals to end (SIGINT, SIGTERM; SIGHUP, as SIGTERM, unless it is ignored)
/// are passed on to the ranks once, so that they can save; a second one ends them at once. When a rank fails,
/// the others are told to end, and killed after some seconds. Lines on a rank's stderr get "rank N: " in
/// front, unless they have it; what mpirun says of its own is shown only where no rank has said why. No
/// process is left behind: children are in process groups of their own, die with this process, and
/// grandchildren come to it. Returns the first exit code that was not 0 (128 + signal where one ended it), or
/// 0. Throws BackendError where a process cannot be started.
int run_processes(const std::vector<Command>& commands);

}  // namespace athanor::dist
