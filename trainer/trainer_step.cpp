// One step of a Trainer: passes, and the update.

#include <algorithm>
#include <optional>

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/loss.h"
#include "kernels/copy.h"
#include "kernels/metrics.h"
#include "tensor/error.h"
#include "trainer/trainer.h"

namespace athanor {

std::int64_t Trainer::train_step() {
  const std::optional<ForbidSync> forbid =
      config_.forbid_sync ? std::optional<ForbidSync>(std::in_place) : std::nullopt;
  // What this step will see, known before it starts: each pass weighs as many samples as it has, so that a
  // shorter last step is still an exact mean.
  const std::int64_t left = train_->samples_per_epoch() - at_.epoch_samples;
  const std::int64_t total = std::min(left, config_.accumulate * train_->options().batch_size);
  if (total == 0) return 0;
  (void)ranks_.take_seconds();  // of agreements since the last step
  clock_.start();
  arena_->snapshot_buffers();
  totals_before_.copy_bytes_from(totals_);
  accumulate_gradients(total);
  const double waited_s = step_->waited_s();
  update();
  clock_.lap(at_.times.update);
  const double device_s = step_->waited_s() - waited_s, shared_s = ranks_.take_seconds();
  at_.times.device += device_s;
  at_.times.communication += shared_s;
  at_.times.update -= device_s + shared_s;
  return total;
}

void Trainer::accumulate_gradients(std::int64_t samples, bool share) {
  arena_->zero_grad();
  // Random numbers are a function of the applied steps and of which op of the step draws them.
  on_device(config_.device, [](auto& context) { context.set_random_ops(0); });
  clock_.lap(at_.times.update);
  Batch batch;  // this rank's part
  for (std::int64_t done = 0; done < samples; done += train_->options().batch_size) {
    next_batch(batch);
    const bool last = done + train_->options().batch_size >= samples;
    const auto silent = ranks_.keep_to_itself(share && last);
    if (batch.size() == 0 && !(share && ranks_.joins_norms())) continue;
    backward_pass(batch, static_cast<double>(batch.size()) / static_cast<double>(samples));
  }
}

void Trainer::backward_pass(const Batch& batch, double weight) {
  Tensor loss;
  {
    const Tensor images = (*preprocess_)(batch, at_.epoch, true);
    clock_.lap(at_.times.copy);
    const AllocTag named("activations");
    const Tensor target = batch.labels.to(config_.device);
    const Tensor logits = (*model_)(images);
    ATH_CHECK(logits.shape() == (Shape{batch.size(), train_->spec().classes}),
              "trainer: the model must return logits {}, but got {}",
              (Shape{batch.size(), train_->spec().classes}), logits.shape());
    loss = cross_entropy(logits, target, static_cast<float>(config_.label_smoothing));
    add_metrics(logits, target, static_cast<float>(config_.label_smoothing), totals_);
  }
  const double waited_s = ranks_.take_waited_s();
  at_.times.communication += waited_s;
  at_.times.forward -= waited_s;
  clock_.lap(at_.times.forward);
  backward_scaled(loss, *step_, static_cast<float>(weight));
  clock_.lap(at_.times.backward);
}

void Trainer::clear_metrics(const Tensor& totals) {
  on_device(totals.device(), [&](auto& context) { kernels::fill(context, totals, 0); });
}

// Not by way of the batch's mean: f32 means, times what ranks have of a batch, are others than one rank's.
void Trainer::add_metrics(const Tensor& logits, const Tensor& target, float smoothing,
                          const Tensor& totals) const {
  const NoGrad no_grad;
  const Tensor losses = cross_entropy(logits, target, smoothing, Reduction::none);
  on_device(config_.device,
            [&](auto& context) { kernels::add_metrics(context, losses, logits, target, totals); });
}

void Trainer::update() {
  if (!ranks_.reduce(*step_, limits_)) meter_->measure(*step_, limits_);
  optimizer_->set_learning_rates(*step_, schedule_);
  optimizer_->step(*step_);
  if (!ranks_.overlaps_gather()) ranks_.complete_weights();
  if (ema_) ema_->update(*step_);
  arena_->restore_buffers_if_skipped(*step_);
  on_device(config_.device,
            [&](auto& context) { kernels::copy_if_skipped(context, totals_before_, totals_); });
  finish_step(*step_, scaling_, limits_.outliers);
  at_.validated = false;
}

void Trainer::tell_result(const StepState& state) {
  StepReport report;
  report.attempted = state.attempted_steps();
  report.result = state.found_inf       ? StepResult::skipped_overflow
                  : state.found_outlier ? StepResult::skipped_outlier
                                        : StepResult::applied;
  report.grad_norm = state.grad_norm;
  report.learning_rate = state.learning_rate[0];
  report.loss_scale = state.loss_scale;
  for (auto& callback : callbacks_) callback->on_step_result(*this, report);
}

}  // namespace athanor
