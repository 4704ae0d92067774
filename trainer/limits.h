#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "trainer/callback.h"
#include "trainer/config.h"
#include "trainer/parallel_strategy.h"
#include "trainer/phase_times.h"
#include "trainer/signals.h"

namespace athanor {

/// Whether training goes on: limits of steps and of time, signals, what callbacks want, what other ranks say.
/// Ranks must leave the same loop at the same step: what ends training is what all of them have voted for.
/// The same votes say that a checkpoint is due by the clock, or because SIGUSR1 asked for one.
class Limits {
 public:
  /// While it lives, signals are noted.
  Limits(const TrainerConfig& config, ParallelStrategy& strategy, const RunClock& clock)
      : config_(config), strategy_(strategy), clock_(clock) {}

  /// This rank votes to stop from now on; its first reason counts. `why` is a line for the user.
  void stop(Ended how);

  bool stopped() const { return ended_.has_value(); }
  /// How it ended, or will where nothing happens.
  Ended ended() const { return ended_.value_or(Ended()); }
  /// The signal that some rank has caught, and all know of; 0: none has. It may have come after another
  /// reason.
  int signal() const { return signal_; }

  /// Whether a checkpoint is wanted at this step, for the first time: the same on all ranks.
  bool take_save_request() { return std::exchange(save_requested_, false); }
  /// One has been saved: --checkpoint-every Nmin counts from now on, and what was asked for is done.
  void saved() {
    saved_at_s_ = clock_.seconds();
    save_requested_ = false;
  }

  /// After each step; `attempted` counts those of the run. One rank takes its vote at once; of several, the
  /// votes travel with their next step, whose outcome they take().
  void after_step(std::int64_t attempted);
  /// True where training ends.
  bool take(const dist::StopVote& outcome);
  /// Votes, and takes the outcome at once: a call of all ranks.
  void agree(bool between_steps = false);
  /// The run has come to nothing, whatever ended it.
  void diverged(std::string why);

 private:
  dist::StopVote vote(bool between_steps);
  void end(Ended how);

  const TrainerConfig& config_;
  ParallelStrategy& strategy_;
  const RunClock& clock_;
  const SignalGuard signals_;
  std::optional<Ended> wanted_, ended_;  // by this rank; by all
  int signal_ = 0;
  double saved_at_s_ = 0;
  bool save_requested_ = false;
};

}  // namespace athanor
