#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "trainer/callback.h"

namespace athanor {

/// The decision alone: has a metric stopped improving? Patience counts validations in a row without a value
/// strictly better than the best one. NaN or infinity stops at once.
class EarlyStopRule {
 public:
  enum class Goal : std::uint8_t { minimum, maximum };
  enum class Verdict : std::uint8_t { improved, waiting, stop, not_finite };

  EarlyStopRule(Goal goal, std::int64_t patience);

  Verdict update(double value);

  double best() const { return best_; }
  /// The validation that gave it, 0 is the first; -1: none yet.
  std::int64_t best_at() const { return best_at_; }
  std::int64_t bad_in_a_row() const { return bad_; }

  /// Where it stands, for checkpoints. load_state_dict() ignores entries it does not know.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  Goal goal_;
  std::int64_t patience_;
  double best_;
  std::int64_t best_at_ = -1, seen_ = 0, bad_ = 0;
};

/// Stops training by that rule, and puts the best epoch's weights and statistics back at the end, whatever
/// ended it.
class EarlyStopping final : public Callback {
 public:
  /// Throws ArgumentError on an unknown metric.
  explicit EarlyStopping(const EarlyStop& options);

  void on_epoch_end(Trainer& trainer, const EpochReport& report) override;
  void on_train_end(Trainer& trainer) override;
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return "early_stopping_" + metric_; }
  StateDict state_dict(const Trainer& trainer) const override;
  void load_state_dict(const Trainer& trainer, const StateDict& state) override;

 private:
  void keep(const Trainer& trainer);

  std::string metric_;
  EarlyStopRule rule_;
  std::int64_t best_epoch_ = 0, last_epoch_ = 0;
  std::int64_t applied_steps_ = 0;  // until the last epoch that counted
  StateDict best_;                  // masters and buffers, by name; empty before the first value
};

}  // namespace athanor
