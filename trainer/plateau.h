#pragma once

#include <cstdint>
#include <string>

#include "trainer/callback.h"
#include "trainer/config.h"

namespace athanor {

/// Multiplies all learning rates by a factor when a metric has not improved for more than `patience`
/// consecutive validations: torch.optim.lr_scheduler.ReduceLROnPlateau with its defaults (an improvement
/// exceeds one part in 10,000, no cooldown; a value that is no number is no improvement). `lowest`: lower
/// bound, as a fraction of the first rate. The metric is val_loss, or train_loss without validation, unless
/// another is named.
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

  /// The decision only: the factor for rates after a validation with this value; mostly 1.
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
  double scale_ = 1;  // the product of all factors so far
};

/// The options of --schedule plateau.
ReduceOnPlateau::Options plateau_options(const TrainerConfig& config);

}  // namespace athanor
