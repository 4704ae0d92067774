#pragma once

#include <cstdint>
#include <string>

#include "trainer/callback.h"
#include "trainer/config.h"

namespace athanor {

/// Multiplies all learning rates by a factor when a metric has not improved for more than `patience`
/// validations in a row: torch.optim.lr_scheduler.ReduceLROnPlateau with its defaults (an improvement is one
/// of more than a 10,000th part, no cooldown). `lowest`: the share of the first rate below which it never
/// goes. The metric is val_loss, or train_loss where nothing is validated, unless another is named.
class ReduceOnPlateau final : public Callback {
 public:
  struct Options {
    std::string metric = {};
    Goal goal = Goal::minimum;
    std::int64_t patience = 10;
    double factor = 0.1;
    double lowest = 0;
  };
  explicit ReduceOnPlateau(Options options);

  /// The decision alone: what rates are multiplied by after a validation that has measured this; mostly 1.
  double update(double value);

  void on_fit_begin(Trainer&, const FitInfo&) override { *this = ReduceOnPlateau(options_); }
  void on_validated(Trainer& trainer, const EpochReport& report) override;
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return "plateau"; }
  StateDict state_dict(const Trainer& trainer) const override;
  void load_state_dict(const Trainer& trainer, const StateDict& state) override;

 private:
  Options options_;
  double best_ = 0;
  bool has_best_ = false;
  std::int64_t bad_in_a_row_ = 0;
  double scale_ = 1;  // the product of what rates have been multiplied by
};

/// As --schedule plateau has it.
ReduceOnPlateau::Options plateau_options(const TrainerConfig& config);

}  // namespace athanor
