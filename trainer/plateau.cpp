#include "trainer/plateau.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/trainer.h"

namespace athanor {
namespace {

constexpr double kThreshold = 1e-4;
constexpr double kMin = 1e-30;  // minimum of the scale that is safe in f32 products

}  // namespace

ReduceOnPlateau::ReduceOnPlateau(Options options) : options_(std::move(options)) {}

double ReduceOnPlateau::update(double value) {
  const bool falls = options_.goal == Goal::minimum;
  const double gain = falls ? best_ - value : value - best_;
  // A NaN is never better, nor is an infinity that even the first value must beat.
  const bool first = falls ? value < HUGE_VAL : value > -HUGE_VAL;
  if (has_best_ ? gain > kThreshold * std::abs(best_) : first) {
    best_ = value;
    has_best_ = true;
    bad_in_a_row_ = 0;
    return 1;
  }
  if (++bad_in_a_row_ <= options_.patience) return 1;
  bad_in_a_row_ = 0;
  const double before = scale_;
  scale_ = std::min(before, std::max({before * options_.factor, options_.lowest, kMin}));
  return scale_ / before;
}

void ReduceOnPlateau::on_validated(Trainer& trainer, const EpochReport& report) {
  double value = report.value_of(options_.metric.empty() ? "val_loss" : options_.metric);
  if (options_.metric.empty() && std::isnan(value) && report.finite) value = report.train_loss;
  const double factor = update(value);
  if (factor < 1) trainer.scale_learning_rates(factor);
}

StateDict ReduceOnPlateau::state_dict(const Trainer&) const {
  StateDict state;
  state.set("best", best_);
  state.set("has_best", static_cast<std::int64_t>(has_best_));
  state.set("bad_in_a_row", bad_in_a_row_);
  state.set("scale", scale_);
  return state;
}

void ReduceOnPlateau::load_state_dict(const Trainer&, const StateDict& state) {
  ReduceOnPlateau loaded(options_);
  loaded.best_ = state.real("best");
  loaded.has_best_ = state.integer("has_best") != 0;
  loaded.bad_in_a_row_ = state.integer("bad_in_a_row");
  loaded.scale_ = state.real("scale");
  state.require_all_used("plateau");
  *this = std::move(loaded);
}

ReduceOnPlateau::Options plateau_options(const TrainerConfig& config) {
  ReduceOnPlateau::Options options{.patience = config.schedule_options.patience,
                                   .factor = config.schedule_options.factor,
                                   .lowest = config.min_lr / highest_rate(config)};
  if (const auto& watched = config.judged_by()) {
    options.metric = watched->metric;
    options.goal = watched->goal_or_default();
  }
  return options;
}

}  // namespace athanor
