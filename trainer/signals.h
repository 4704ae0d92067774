#pragma once

namespace athanor {

/// While alive, SIGINT, SIGTERM and SIGHUP are noted instead of ending the process, so that training can
/// finish its step and save. A second SIGINT or SIGTERM ends the process as usual. An ignored signal (SIGHUP
/// under nohup, SIGINT in the background of a script) stays ignored. An earlier handler (the Watchdog's, with
/// several ranks) is also called. There may be several guards; the last restores the handlers before the
/// first. SIGUSR1 requests a checkpoint and ends nothing.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// The signal caught, or 0.
  int caught() const;
  /// Whether SIGUSR1 has arrived since the last call on any guard.
  bool take_save_request() const;
};

}  // namespace athanor
