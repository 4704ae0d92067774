#include "trainer/signals.h"

namespace athanor {
namespace {

volatile std::sig_atomic_t caught_signal = 0;
using Handler = void (*)(int);
Handler before_int = nullptr, before_term = nullptr;  // who else wants to know

void note(int signal) {
  caught_signal = signal;
  if (const Handler before = signal == SIGINT ? before_int : before_term) before(signal);
}

Handler function_of(const struct sigaction& action) {
  const bool none = (action.sa_flags & SA_SIGINFO) || action.sa_handler == SIG_DFL ||
                    action.sa_handler == SIG_IGN || action.sa_handler == note;
  return none ? nullptr : action.sa_handler;
}

}  // namespace

SignalGuard::SignalGuard() {
  caught_signal = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, nullptr, &old_int_);
  sigaction(SIGTERM, nullptr, &old_term_);
  before_int = function_of(old_int_);
  before_term = function_of(old_term_);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

int SignalGuard::caught() const {
  return caught_signal;
}

}  // namespace athanor
