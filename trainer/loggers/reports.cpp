#include "trainer/loggers/reports.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace athanor {
namespace {

void add(std::vector<NamedValue>& values, const char* prefix, const Metrics& metrics) {
  for (const auto& [name, value] : metrics.others) values.push_back({prefix + name, value});
}

}  // namespace

double EpochReport::value_of(std::string_view name) const {
  if (name == "train_loss") return train_loss;
  if (name == "train_accuracy") return train_accuracy;
  if (name == "val_loss") return val_loss;
  if (name == "val_accuracy") return val_accuracy;
  const auto found =
      std::find_if(others.begin(), others.end(), [&](const NamedValue& one) { return one.name == name; });
  return found == others.end() ? std::numeric_limits<double>::quiet_NaN() : found->value;
}

std::optional<NamedValue> EpochReport::not_finite() const {
  if (finite) return std::nullopt;
  for (const NamedValue& one : others) {
    if (one.name.starts_with("val_") && !std::isfinite(one.value)) return one;
  }
  return NamedValue{"val_loss", val_loss};
}

StepCounts counts_of(const StepState& state) {
  return {state.applied_steps, state.overflow_steps, state.outlier_steps};
}

StepReport report_of(const StepState& state) {
  const StepResult result = state.found_inf       ? StepResult::skipped_overflow
                            : state.found_outlier ? StepResult::skipped_outlier
                                                  : StepResult::applied;
  return {state.attempted_steps(), result, state.grad_norm, state.learning_rate[0], state.loss_scale};
}

StepInfo info_of(const RunPosition& position, double seconds) {
  return {.epoch = position.epoch + 1,
          .step = position.epoch_steps,
          .attempted = position.attempted,
          .samples = position.epoch_samples,
          .epoch_s = seconds - position.epoch_began_s};
}

void fill(EpochReport& report, const RunPosition& position, const StepState& state, const Metrics& training,
          const Metrics& validation, double epoch_s, double seconds) {
  report.epoch = position.epoch + 1;
  report.train_loss = training.loss;
  report.train_accuracy = training.accuracy;
  report.val_loss = validation.loss;
  report.val_accuracy = validation.accuracy;
  add(report.others, "train_", training);
  add(report.others, "val_", validation);
  report.finite = validation.finite;
  report.images_per_s = static_cast<double>(position.epoch_samples) / std::max(epoch_s, 1e-9);
  report.wall_s = seconds;
  report.learning_rate = state.learning_rate[0];
  report.loss_scale = state.loss_scale;
  report.steps = counts_of(state);
}

FitReport report_of(const RunPosition& position, const StepState& state, const Metrics& test,
                    double seconds) {
  FitReport report;
  report.test_loss = test.loss;
  report.test_accuracy = test.accuracy;
  add(report.others, "test_", test);
  report.wall_s = seconds;
  report.images_per_s = static_cast<double>(position.trained_samples) / std::max(position.train_s, 1e-9);
  report.steps = counts_of(state);
  report.epochs = position.epoch;
  return report;
}

}  // namespace athanor
