#include "trainer/signals.h"

namespace athanor {
namespace {

constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP};
using Handler = void (*)(int);

volatile std::sig_atomic_t caught_signal = 0;
std::array<Handler, kEnding.size()> handlers_before{};  // who else wants to know

void note(int signal) {
  if (caught_signal == 0) caught_signal = signal;
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    if (kEnding[i] == signal && handlers_before[i]) handlers_before[i](signal);
  }
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
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], nullptr, &before_[i]);
    handlers_before[i] = function_of(before_[i]);
    // A terminal that goes away says so twice: by the system and by the shell.
    action.sa_flags = static_cast<int>(kEnding[i] == SIGHUP ? SA_RESTART : SA_RESETHAND | SA_RESTART);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kEnding[i], &action, nullptr);
  }
}

SignalGuard::~SignalGuard() {
  for (std::size_t i = 0; i < kEnding.size(); ++i) sigaction(kEnding[i], &before_[i], nullptr);
}

int SignalGuard::caught() const {
  return caught_signal;
}

}  // namespace athanor
