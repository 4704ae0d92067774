#pragma once

#include <functional>
#include <string>

#include "dist/watch/watchdog.h"
#include "trainer/callback.h"

namespace athanor {

/// Exit codes of every binary.
inline constexpr int kExitDone = 0, kExitBadInput = 2, kExitBackend = 3, kExitDiverged = 4,
                     kExitPeerLost = dist::kExitPeerLost;
/// 0; 4 for a training that has diverged; 129, 130 and 143 for one that SIGHUP, SIGINT or
/// SIGTERM ended.
inline int exit_code(const FitReport& report) {
  if (report.signal) return 128 + report.signal;
  return report.stopped_by == StoppedBy::diverged ? kExitDiverged : kExitDone;
}

/// What is said of an exception, and with which exit code a process ends.
struct Failure {
  int exit_code = kExitBadInput;
  std::string line;  ///< one line; empty for a call for help, which has been printed
};
/// Of the exception that is being handled: to be called in a catch block.
Failure describe_failure();

/// The body of a main(): calls `body` and returns its exit code, or that of the exception it threw, said in
/// one line on stderr; with_standard_files() around it. First makes idle OpenMP threads sleep soon instead of
/// spinning, unless the user's environment says otherwise; as libgomp reads its environment before main(),
/// the process starts itself once more for it.
int run_main(int argc, char** argv, const std::function<int(int argc, char** argv)>& body);

/// The first of these alone, for a main() of another kind. Call it before anything else.
void let_threads_sleep(char** argv);

/// Opens stdin and stderr where they are closed, so that no file opened later takes their place; calls
/// `body`; writes what is left of stdout. Returns body's exit code, or 2, with one line on stderr, where
/// stdout is closed or has not taken all that was printed (a full disk).
int with_standard_files(const std::function<int()>& body);

}  // namespace athanor
