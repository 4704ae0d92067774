#include "kernels/cpu/deferred_signals.h"

#include <initializer_list>

#include <pthread.h>

namespace athanor::cpu {
namespace {

const sigset_t& signals_of_others() {
  static const sigset_t signals = [] {
    sigset_t all;
    sigfillset(&all);
    for (const int of_this_thread : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
      sigdelset(&all, of_this_thread);
    return all;
  }();
  return signals;
}

/// In threads that a caller's own OpenMP loops have started. Later ones inherit what their starter defers.
bool defer_in_team([[maybe_unused]] int threads) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
#endif
  pthread_sigmask(SIG_BLOCK, &signals_of_others(), nullptr);
  return true;
}

}  // namespace

DeferredSignals::DeferredSignals(int threads) {
  pthread_sigmask(SIG_BLOCK, &signals_of_others(), &before_);
  if (threads > 1) {
    [[maybe_unused]] static thread_local const bool deferred = defer_in_team(threads);
  }
}

DeferredSignals::~DeferredSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace athanor::cpu
