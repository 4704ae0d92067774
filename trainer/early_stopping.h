#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trainer/callback.h"
#include "trainer/config.h"

namespace athanor {

/// The decision alone: has a metric stopped improving? Patience counts validations in a row without a value
/// that is better than the best one by more than min_delta. NaN or infinity stops at once, and so does a
/// value as good as stop_at, or worse than diverge_at.
struct EarlyStopRule {
  enum class Verdict : std::uint8_t { improved, waiting, stop, not_finite, reached, hopeless };

  Verdict update(double value);

  Goal goal;
  std::int64_t patience;
  double min_delta = 0;
  std::optional<double> stop_at = {}, diverge_at = {};
  double best = (goal == Goal::minimum ? 1 : -1) * std::numeric_limits<double>::infinity();
  std::int64_t best_at = -1;  ///< the validation that gave it, 0 is the first; -1: none yet
  std::int64_t seen = 0, bad_in_a_row = 0;
};

/// Throws ArgumentError where what it watches is none of the names, which are all that a run measures.
void check_metric(const EarlyStop& options, const std::vector<std::string>& measured);

/// Stops training by that rule, and puts the best epoch's weights and statistics back at the end, whatever
/// ended it.
class EarlyStopping final : public Callback {
 public:
  explicit EarlyStopping(const EarlyStop& options);

  void on_fit_begin(Trainer&, const FitInfo&) override { *this = EarlyStopping(options_); }
  void on_validated(Trainer& trainer, const EpochReport& report) override;
  void on_train_end(Trainer& trainer) override;
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return "early_stopping_" + metric_; }
  StateDict state_dict(const Trainer& trainer) const override;
  void load_state_dict(const Trainer& trainer, const StateDict& state) override;

 private:
  void check_measured(const EpochReport& report, double value) const;
  void keep(const Trainer& trainer, const EpochReport& report);
  std::string back_to_best() const;

  EarlyStop options_;
  std::string metric_;
  EarlyStopRule rule_;
  std::int64_t best_epoch_ = 0, last_epoch_ = 0;
  std::int64_t best_step_ = 0;      // of a validation in the middle of that epoch; 0: at its end
  std::int64_t applied_steps_ = 0;  // until the last epoch that counted
  StateDict best_;                  // masters and buffers, by name; empty before the first value
};

}  // namespace athanor
