#pragma once

#include <string>
#include <vector>

// One command, several ranks: the program starts itself again, once per rank of this machine, and watches.

namespace athanor::dist {

/// A process to be started.
struct Command {
  std::vector<std::string> arguments;    ///< the program first; looked for in PATH
  std::vector<std::string> environment;  ///< "NAME=value", besides what this process has
  int rank = -1;                         ///< -1: mpirun, whose children are the ranks
  int inherited = -1;                    ///< a file descriptor it is given
};

/// Runs them until all have ended. Signals to end (SIGINT, SIGTERM, SIGHUP) are passed on to the ranks once,
/// so that they can save; a second one ends them at once. When a rank fails, the others are told to end, and
/// killed after some seconds. Lines on a rank's stderr get "rank N: " in front, unless they have it; what
/// mpirun says of its own is shown only where no rank has said why. No process is left behind: children are
/// in process groups of their own, die with this process, and grandchildren come to it. Returns the first
/// exit code that was not 0 (128 + signal where one ended it), or 0. Throws BackendError where a process
/// cannot be started.
int run_processes(const std::vector<Command>& commands);

/// `ranks` copies of this program with these arguments (argv[1] on), through mpirun, with settings for cores
/// that are shared. Throws BackendError where there is no mpirun.
Command with_mpirun(int ranks, const std::vector<std::string>& arguments);

/// The same as processes of our own, one per GPU: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT and ATHANOR_JOB say who they are. Rank 0 inherits a socket that listens at that
/// port, whose number is in ATHANOR_LISTENING: RendezvousOptions::listening.
std::vector<Command> one_per_gpu(int ranks, const std::vector<std::string>& arguments);

/// Called by a rank: dies with who has started it, where that was with_mpirun() or one_per_gpu().
void die_with_launcher();
/// Whether the launcher writes to a terminal. (mpirun's ranks all believe they do.)
bool launcher_has_terminal();

}  // namespace athanor::dist
