#include "trainer/reports.h"

#include <algorithm>

namespace athanor {

StepCounts counts_of(const StepState& state) {
  return {state.applied_steps, state.overflow_steps, state.outlier_steps};
}

StepReport report_of(const StepState& state) {
  StepReport report;
  report.attempted = state.attempted_steps();
  report.result = state.found_inf       ? StepResult::skipped_overflow
                  : state.found_outlier ? StepResult::skipped_outlier
                                        : StepResult::applied;
  report.grad_norm = state.grad_norm;
  report.learning_rate = state.learning_rate[0];
  report.loss_scale = state.loss_scale;
  return report;
}

StepInfo info_of(const RunPosition& position, double seconds) {
  return {.epoch = position.epoch + 1,
          .step = position.epoch_steps,
          .attempted = position.attempted,
          .samples = position.epoch_samples,
          .epoch_s = seconds - position.epoch_began_s};
}

void fill(EpochReport& report, const RunPosition& position, const StepState& state, const Metrics& training,
          double epoch_s, double seconds) {
  report.epoch = position.epoch + 1;
  report.train_loss = training.loss;
  report.train_accuracy = training.accuracy;
  report.val_loss = position.validation.loss;
  report.val_accuracy = position.validation.accuracy;
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
  report.wall_s = seconds;
  report.images_per_s = static_cast<double>(position.trained_samples) / std::max(position.train_s, 1e-9);
  report.steps = counts_of(state);
  report.epochs = position.epoch;
  return report;
}

}  // namespace athanor
