#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "trainer/callback.h"
#include "trainer/config.h"

namespace athanor {

/// The decision alone: has a metric stopped improving? Patience counts validations in a row without a value
/// strictly better than the best one. NaN or infinity stops at once.
struct EarlyStopRule {
  enum class Verdict : std::uint8_t { improved, waiting, stop, not_finite };

  Verdict update(double value);

  Goal goal;
  std::int64_t patience;
  double best = (goal == Goal::minimum ? 1 : -1) * std::numeric_limits<double>::infinity();
  std::int64_t best_at = -1;  ///< the validation that gave it, 0 is the first; -1: none yet
  std::int64_t seen = 0, bad_in_a_row = 0;
};

/// Stops training by that rule, and puts the best epoch's weights and statistics back at the end, whatever
/// ended it.
class EarlyStopping final : public Callback {
 public:
  explicit EarlyStopping(const EarlyStop& options);

  void on_fit_begin(Trainer&, const FitInfo&) override { *this = EarlyStopping(options_); }
  void on_epoch_end(Trainer& trainer, const EpochReport& report) override;
  void on_train_end(Trainer& trainer) override;
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return "early_stopping_" + metric_; }
  StateDict state_dict(const Trainer& trainer) const override;
  void load_state_dict(const Trainer& trainer, const StateDict& state) override;

 private:
  void check_measured(const EpochReport& report, double value) const;
  void keep(const Trainer& trainer);

  EarlyStop options_;
  std::string metric_;
  EarlyStopRule rule_;
  std::int64_t best_epoch_ = 0, last_epoch_ = 0;
  std::int64_t applied_steps_ = 0;  // until the last epoch that counted
  StateDict best_;                  // masters and buffers, by name; empty before the first value
};

}  // namespace athanor
