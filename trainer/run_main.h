#pragma once

#include <functional>
#include <string>

#include "dist/watch/watchdog.h"
#include "trainer/callback.h"

namespace athanor {

/// Exit codes of all binaries.
inline constexpr int kExitDone = 0, kExitBadInput = 2, kExitBackend = 3, kExitDiverged = 4,
                     kExitPeerLost = dist::kExitPeerLost;
/// 0; 4 for training that diverged; 129, 130 and 143 for training ended by SIGHUP, SIGINT or SIGTERM.
inline int exit_code(const FitReport& report) {
  if (report.signal) return 128 + report.signal;
  return report.stopped_by == StoppedBy::diverged ? kExitDiverged : kExitDone;
}

/// The message and exit code of an exception.
struct Failure {
  int exit_code = kExitBadInput;
  std::string line;  ///< one line; empty for --help, which has been printed
};
/// For the exception being handled: call it in a catch block.
Failure describe_failure();

/// The body of a main(): calls `body` inside with_standard_files() and returns its exit code. An exception
/// becomes one line on stderr and its exit code. First ignores SIGUSR1, makes a rank die with its launcher,
/// and idle OpenMP threads sleep soon instead of spinning, unless the user's environment sets it; libgomp
/// reads the environment before main(), so the process restarts itself once.
int run_main(int argc, char** argv, const std::function<int(int argc, char** argv)>& body);

/// Only the last of these, for another kind of main(). Call it before anything else.
void use_passive_openmp_waits(char** argv);

/// The text of --version: "train_digits (Athanor) 0.2.0, oneDNN 2.6.3, AVX2, loops on own threads".
std::string version_line(const std::string& program);

/// Opens stdin and stderr if they are closed, so that no later file gets their descriptors; raises the limit
/// of open files to the most that the user may have, at most 65,536; calls `body`; flushes stdout. Returns
/// body's exit code, or 2 with one line on stderr if stdout is closed or could not be written (a full disk).
int with_standard_files(const std::function<int()>& body);

}  // namespace athanor
