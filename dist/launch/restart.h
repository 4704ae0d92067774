#pragma once

#include <functional>

namespace athanor::dist {

/// Whether a job that ended with this exit code has lost a rank, so that a second start, from a checkpoint,
/// may succeed: 74 (a rank was lost or did not respond), or 128 + SIGKILL, SIGSEGV or SIGBUS. Wrong
/// arguments, a diverged run and a signal that was meant for the job would only repeat.
bool has_lost_rank(int exit_code);

/// Calls `start`, which runs a job and returns its exit code. While that is the code of a lost rank, calls it
/// again, at most `restarts` times, each announced by one line on stderr. Returns the last exit code.
int run_with_restarts(int restarts, const std::function<int()>& start);

}  // namespace athanor::dist
