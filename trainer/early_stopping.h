#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trainer/callback.h"
#include "trainer/config.h"

namespace athanor {

/// The decision only: has a metric stopped improving? Patience counts consecutive validations without an
/// improvement over the best value by more than min_delta. NaN or infinity stops at once; so does a value as
/// good as stop_at, or worse than diverge_at.
struct EarlyStopRule {
  enum class Verdict : std::uint8_t { improved, waiting, stop, not_finite, reached, hopeless };

  Verdict update(double value);

  Goal goal;
  std::int64_t patience;
  double min_delta = 0;
  std::optional<double> stop_at = {}, diverge_at = {};
  double best = (goal == Goal::minimum ? 1 : -1) * std::numeric_limits<double>::infinity();
  std::int64_t best_at = -1;  ///< index of the best validation, from 0; -1: none yet
  std::int64_t seen = 0, bad_in_a_row = 0;
};

/// Throws ArgumentError if the watched metric is not among `measured`, all names that a run measures.
void check_metric(const EarlyStop& options, const std::vector<std::string>& measured);

/// Stops training by that rule. If it `keeps` weights, restores those and the statistics of the best epoch at
/// the end, whatever ended training.
class EarlyStopping final : public Callback {
 public:
  explicit EarlyStopping(const EarlyStop& options, bool keeps = true);

  void on_fit_begin(Trainer&, const FitInfo&) override { *this = EarlyStopping(options_, keeps_); }
  void on_validated(Trainer& trainer, const EpochReport& report) override;
  void on_train_end(Trainer& trainer) override;
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return (keeps_ ? "early_stopping_" : "stopping_") + metric_; }
  StateDict state_dict(const Trainer& trainer) const override;
  void load_state_dict(const Trainer& trainer, const StateDict& state) override;

 private:
  void check_measured(const EpochReport& report, double value) const;
  void keep(const Trainer& trainer, const EpochReport& report);
  std::string back_to_best() const;

  EarlyStop options_;
  bool keeps_;
  std::string metric_;
  EarlyStopRule rule_;
  std::int64_t best_epoch_ = 0, last_epoch_ = 0;
  std::int64_t best_step_ = 0;      // of a validation within that epoch; 0: at its end
  std::int64_t applied_steps_ = 0;  // at the last epoch that counted
  StateDict best_;                  // masters and buffers, by name; empty before the first value
};

}  // namespace athanor
