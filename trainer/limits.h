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

/// Decides whether training continues: limits on steps and time, signals, callbacks and other ranks. All
/// ranks must leave the loop at the same step, so they vote. The same votes request checkpoints that are due
/// by time or by SIGUSR1.
class Limits {
 public:
  /// Signals are caught while this is alive.
  Limits(const TrainerConfig& config, ParallelStrategy& strategy, const RunClock& clock)
      : config_(config), strategy_(strategy), clock_(clock) {}

  /// This rank votes to stop from now on; its first reason counts. `why` is a line for the user.
  void stop(Ended how);

  bool stopped() const { return ended_.has_value(); }
  /// How training ended, or will end if nothing else happens.
  Ended ended() const { return ended_.value_or(Ended()); }
  /// The signal that a rank has caught and all ranks know; 0: none. It may have come after another reason.
  int signal() const { return signal_; }

  /// Whether a checkpoint is newly requested at this step: the same on all ranks.
  bool take_save_request() { return std::exchange(save_requested_, false); }
  /// A checkpoint is saved: restarts the clock of --checkpoint-every Nmin, and clears requests.
  void saved() {
    saved_at_s_ = clock_.seconds();
    save_requested_ = false;
  }

  /// After each step of the run. Several ranks send votes with their next step, and then take() the outcome.
  void after_step(std::int64_t attempted);
  /// True if training ends.
  bool take(const dist::StopVote& outcome);
  /// Votes and takes the outcome at once: a call of all ranks.
  void agree(bool between_steps = false);
  /// Marks the run as diverged, whatever ended it.
  void diverged(std::string why);

 private:
  dist::StopVote vote(bool between_steps);
  void end(Ended how);

  const TrainerConfig& config_;
  ParallelStrategy& strategy_;
  const RunClock& clock_;
  const SignalGuard signals_;
  std::optional<Ended> wanted_, ended_;  // by this rank; by all ranks
  int signal_ = 0;
  double saved_at_s_ = 0;
  bool save_requested_ = false;
};

}  // namespace athanor
