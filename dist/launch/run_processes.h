#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace athanor::dist {

/// A process to start.
struct Command {
  std::vector<std::string> arguments;      ///< the program first, found by PATH
  std::vector<std::string> environment;    ///< "NAME=value", added to this process's environment
  int rank = -1;                           ///< -1: mpirun, whose children are the ranks
  int inherited = -1;                      ///< a file descriptor it inherits
  std::shared_ptr<const void> keeps = {};  ///< resources kept while it runs
};

struct RunOptions {
  /// Time for ranks to end after the first signal: the current step, and a checkpoint.
  std::chrono::milliseconds end_within{300'000};
  /// Time for an mpirun without ranks to end after the first signal.
  std::chrono::milliseconds alone_within{3'000};
  bool show_all = false;  ///< shows every line of mpirun itself, at once
};

/// Runs the processes of `commands` until all have ended. It is called while the following signals wait, so
/// that what it makes for the processes is removed, too. The first SIGINT, SIGTERM or SIGHUP is passed on to
/// every rank, also to one that starts later, so that they can save. Ranks still running after `end_within`
/// are killed, with one line on stderr and exit code 74. A second SIGINT or SIGTERM kills at once. A signal
/// that this process ignores stays ignored. SIGUSR1 is passed on to ranks that handle it, and ends nothing.
/// Ctrl-Z (SIGTSTP) stops the ranks, and SIGCONT to this process continues them. When a rank fails, the
/// others are told to end, and killed after some seconds. Lines on a rank's stderr get the prefix "rank N: ",
/// unless they have it. mpirun's own messages become one line, shown only if no rank has given a reason. An
/// mpirun that has no ranks is killed: `alone_within` after the first signal; else if it starts none within
/// `end_within`, or does not end half a minute after its last one, with one line and exit code 74. No process
/// is left behind: children have their own process groups and die with this process, which adopts
/// grandchildren. Returns the first nonzero exit code (128 + signal if a signal ended it; 3 if mpirun itself
/// failed), or 0. Throws BackendError if a process cannot be started, and what `commands` throws.
int run_processes(const std::function<std::vector<Command>()>& commands, const RunOptions& options = {});

}  // namespace athanor::dist
