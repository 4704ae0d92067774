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

/// Until the first SignalGuard, and after the last, has SIGINT, SIGTERM and SIGHUP end the process with one
/// line and the exit code of a run that they end, 128 + signal, instead of without a word. Ignored signals
/// stay ignored; so are those of one of several ranks left alone, whose launcher reports them.
void say_what_ended();

}  // namespace athanor
