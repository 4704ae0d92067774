// What a Trainer measures and tells: validation, the reports of epochs and of the whole.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "autograd/grad_mode.h"
#include "dist/watch/watchdog.h"
#include "tensor/error.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// Adds the time it lives to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_;
};

StepCounts counts_of(const StepState& state) {
  return {state.applied_steps, state.overflow_steps, state.outlier_steps};
}

/// Of what kernels/metrics.h has added up.
Metrics metrics_of(const std::vector<double>& total) {
  const double n = total[2];
  if (n == 0) return {kNotMeasured, kNotMeasured, 0};
  return {total[0] / n, total[1] / n, static_cast<std::int64_t>(n)};
}

}  // namespace

Metrics Trainer::read_all(const Tensor& totals) {
  std::vector<double> total = totals.to_vector();
  ranks_.add_up(total);
  return metrics_of(total);
}

Metrics Trainer::running_metrics() const {
  const AllowSync allow;
  return metrics_of(totals_.to_vector());
}

Metrics Trainer::validate() {
  const Stopwatch watch(at_.times.validation);
  std::optional<EmaSwap> average = as_validated();
  ranks_.share_buffers();
  const InferenceMode inference;
  model_->eval();
  clear_metrics(val_totals_);
  held_out_->start_epoch(0);
  Batch batch;
  while (held_out_->next(batch)) {
    if (batch.size() > 0) {
      const Tensor logits = (*model_)((*preprocess_)(batch, 0, false));
      add_metrics(logits, batch.labels.to(config_.device), 0, val_totals_);
    }
    agree();
    if (config_.fast_dev_run || reason_ == StoppedBy::signal) break;
  }
  model_->train();
  if (average) average->end();
  if (reason_ == StoppedBy::signal) return {kNotMeasured, kNotMeasured, 0};
  at_.validation = read_all(val_totals_);
  (void)ranks_.take_seconds();
  at_.validated = true;
  return at_.validation;
}

std::optional<EmaSwap> Trainer::as_validated() const {
  if (!ema_ || !at_.averages_hold) return std::nullopt;
  return std::optional<EmaSwap>(std::in_place, *ema_);
}

bool Trainer::report_epoch(double epoch_s) {
  EpochReport report;
  report.epoch = at_.epoch + 1;
  const Metrics training = read_all(totals_), validation = validate();
  if (reason_ == StoppedBy::signal) return false;
  report.train_loss = training.loss;
  report.train_accuracy = training.accuracy;
  report.val_loss = validation.loss;
  report.val_accuracy = validation.accuracy;
  report.images_per_s = static_cast<double>(at_.epoch_samples) / std::max(epoch_s, 1e-9);
  report.wall_s = seconds_since_start();
  report.learning_rate = step_->known().learning_rate[0];
  report.loss_scale = step_->known().loss_scale;
  report.steps = counts_of(step_->known());
  report.weights_hash = ranks_.weights_hash(*arena_);
  ranks_.check_weights(report.weights_hash);
  report_times(report);
  for (auto& callback : callbacks_) callback->on_epoch_end(*this, report);
  return true;
}

FitReport Trainer::finish() {
  FitReport report;
  report.signal = ranks_.agree({.signal = signals_->caught()}).signal;
  const bool measure_now = !at_.validated && report.signal == 0;
  const Metrics test = measure_now     ? validate()
                       : at_.validated ? at_.validation
                                       : Metrics{kNotMeasured, kNotMeasured, 0};
  report.test_loss = test.loss;
  report.test_accuracy = test.accuracy;
  if (test.samples > 0 && !std::isfinite(test.loss)) {
    reason_ = StoppedBy::diverged;
    why_stopped_ = fmt::format("the last validation's loss is {}; {}", test.loss,
                               advice_on_divergence(config_.precision));
  }
  report.wall_s = seconds_since_start();
  report.images_per_s = static_cast<double>(at_.trained_samples) / std::max(at_.train_s, 1e-9);
  const StepState state = step_->read();
  report.steps = counts_of(state);
  if (ema_ && at_.averages_hold) ema_->swap();  // what was tested is what the caller gets
  report.epochs = at_.epoch;
  report.weights_hash = ranks_.weights_hash(*arena_);
  report.world_size = ranks_.world_size();
  report.strategy = ranks_.strategy();
  report.host_syncs = host_syncs() - syncs_at_start_;
  report.peak_bytes = allocator_of(config_.device).stats().peak;
  report.stopped_by = reason_;
  report.checkpoint = newest_saved_;
  if (auto* watchdog = dist::Watchdog::current())
    watchdog->agreed(true);  // from here on, each ends by itself
  return report;
}

}  // namespace athanor
