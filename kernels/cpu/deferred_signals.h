#pragma once

#include <csignal>

namespace athanor::cpu {

/// While alive, a signal to this process is left to another thread, or waits: neither this thread nor those
/// of its OpenMP team handle one. oneDNN's products need this. With a sum of some hundred terms they keep
/// their stack in the heap, where the frame of a handler would overwrite what lies before it, such as
/// weights. Errors of a thread's own (SIGSEGV, SIGFPE, SIGABRT ...) reach it as ever.
class DeferredSignals {
 public:
  /// `threads`: of the team, this one included.
  explicit DeferredSignals(int threads);
  ~DeferredSignals();
  DeferredSignals(const DeferredSignals&) = delete;
  DeferredSignals& operator=(const DeferredSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace athanor::cpu
