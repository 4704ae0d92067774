#pragma once

#include <csignal>

namespace athanor {

/// While alive, SIGINT and SIGTERM are noted instead of ending the process, so that training can finish its
/// step and say where it stands. A second one ends the process as usual. A handler that was there before (the
/// Watchdog's, with several ranks) is called, too.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// The signal that came, or 0.
  int caught() const;

 private:
  struct sigaction old_int_, old_term_;
};

}  // namespace athanor
