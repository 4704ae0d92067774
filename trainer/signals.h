#pragma once

namespace athanor {

/// While alive, SIGINT, SIGTERM and SIGHUP are noted instead of ending the process, so that training can
/// finish its step and save. A second SIGINT or SIGTERM ends the process as usual. A signal that is ignored
/// (SIGHUP under nohup, SIGINT in the background of a script) stays ignored. A handler that was there before
/// (the Watchdog's, with several ranks) is called, too. There may be several guards; the last puts back what
/// was there before the first. SIGUSR1 asks for a checkpoint, and ends nothing.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// The signal that came, or 0.
  int caught() const;
  /// Whether SIGUSR1 has come since the last call, of whichever guard.
  bool take_save_request() const;
};

}  // namespace athanor
