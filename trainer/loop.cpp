// All of training: epochs of steps, the passes and the update of a step, and what is done between them.

#include <algorithm>
#include <optional>
#include <utility>

#include "optim/step.h"
#include "tensor/counters.h"
#include "trainer/reports.h"
#include "trainer/run.h"

namespace athanor {

FitReport Run::train() {
  begin();
  // An epoch whose last step is done may still have to be reported, in a run that goes on.
  while (position_.epoch < config_.epochs && (!limits_.stopped() || position_.epoch_steps > 0)) {
    begin_epoch();
    while (!limits_.stopped() && train_step()) {
      notify([&](Callback& c) { c.on_step_end(trainer_, info_of(position_, clock_.seconds())); });
      name_unused();
      limits_.after_step(position_.attempted);
      check_overflows(strategy_.known(step_), config_.patience_at_floor);
      if (checkpoints_.due(position_.attempted)) {
        limits_.agree(true);  // the run that goes on from here must know whether it had ended
        save();
      }
      strategy_.publish_weights();
    }
    end_epoch();
  }
  return finish();
}

void Run::begin_epoch() {
  feeding_.train().start_epoch(position_.epoch, position_.epoch_samples);
  if (position_.epoch_steps == 0) {
    metrics_.clear();
    position_.epoch_began_s = clock_.seconds();
  }
  times_before_ = times_.total();
  steps_before_ = position_.attempted;
  part_began_s_ = clock_.seconds();
}

// One step, as optim/step.h has it; false at the end of the epoch, or where ranks have agreed to stop.
bool Run::train_step() {
  const std::int64_t samples = feeding_.samples_of_step(position_.epoch_samples);
  if (samples == 0) return false;
  const std::optional<ForbidSync> forbid =
      config_.forbid_sync ? std::optional<ForbidSync>(std::in_place) : std::nullopt;
  const auto timed = times_.scope(&Times::update);
  const double waited_s = step_.waited_s();
  arena_.snapshot_buffers();
  metrics_.snapshot();
  accumulate_gradients(samples);
  if (limits_.take(strategy_.reduce(step_, gradient_limits_))) return drop_step();
  optimizer_->set_learning_rates(step_, schedule_);
  optimizer_->step(step_);
  if (!overlaps_weights_) strategy_.complete_weights();
  if (ema_) ema_->update(step_);
  arena_.restore_buffers_if_skipped(step_);
  metrics_.restore_if_skipped(step_);
  finish_step(step_, scaling_, gradient_limits_.outliers);
  times_.move(step_.waited_s() - waited_s, &Times::update, &Times::device);
  position_.epoch_samples += samples;
  ++position_.attempted;
  ++position_.epoch_steps;
  position_.validated = false;
  return true;
}

// Each pass weighs as many samples as it has, of all that the step will see: a shorter last step is still an
// exact mean.
void Run::accumulate_gradients(std::int64_t samples, bool share) {
  arena_.zero_grad();
  // Random numbers are a function of the applied steps and of which op of the step draws them.
  on_device(config_.device, [](auto& context) { context.set_random_ops(0); });
  Batch batch;  // this rank's part
  for (std::int64_t done = 0; done < samples; done += config_.batch_size) {
    feeding_.next(batch, times_);
    const bool last = done + config_.batch_size >= samples;
    const auto silent = strategy_.begin_pass(share && last);
    if (batch.size() == 0 && !(share && strategy_.runs_empty_passes())) continue;
    const Tensor loss = forward(batch);
    const auto timed = times_.scope(&Times::backward);
    backward_scaled(loss, step_,
                    static_cast<float>(static_cast<double>(batch.size()) / static_cast<double>(samples)));
  }
}

// The loss of a pass.
Tensor Run::forward(const Batch& batch) {
  const auto timed = times_.scope(&Times::forward);
  const Batch prepared = [&] {
    const auto copying = times_.scope(&Times::copy);
    return feeding_.prepare(batch, position_.epoch, true);
  }();
  const AllocTag named("activations");
  Step step(position_.epoch, batch.size(), metrics_, times_);
  const Tensor loss = task_.training_step(prepared, step);
  ATH_CHECK(loss.defined() && loss.numel() == 1 && loss.dtype() == DType::f32 && loss.requires_grad(),
            "training_step: must return the mean loss of its batch, one f32 that depends on parameters, but "
            "returned {}",
            !loss.defined()        ? "none"
            : loss.requires_grad() ? fmt::format("{} {}", loss.dtype(), loss.shape())
                                   : "one that depends on none");
  if (!step.has_logged_loss()) step.log("loss", loss);
  times_.move(strategy_.take_waited_s(), &Times::forward, &Times::communication);
  return loss;
}

// The votes that have come with its gradients say that the step before was the last one.
bool Run::drop_step() {
  arena_.restore_buffers();
  metrics_.restore();
  return false;
}

void Run::end_epoch() {
  strategy_.complete_weights();
  limits_.agree(true);
  const StepState last = [&] {
    const auto timed = times_.scope(&Times::device);
    return step_.read();
  }();
  const double epoch_s = clock_.seconds() - position_.epoch_began_s;
  EpochReport report = feeding_.begin_report(times_.total() - times_before_, clock_.seconds() - part_began_s_,
                                             position_.attempted - steps_before_);
  check_overflows(last, std::min(config_.patience_at_floor, position_.epoch_steps));
  // What is not whole, or not reported, is so in the run that goes on from here.
  const bool whole = position_.epoch_samples == feeding_.train().samples_per_epoch();
  if (!whole) save();
  const bool reported = limits_.signal() == 0 && report_epoch(std::move(report), epoch_s);
  if (!reported) save();
  limits_.agree();  // a callback may have had enough
  position_.train_s += epoch_s;
  position_.trained_samples += position_.epoch_samples;
  position_.epoch_samples = position_.epoch_steps = 0;
  ++position_.epoch;
  const bool over = limits_.stopped() || position_.epoch == config_.epochs;
  if (reported && whole && (over || config_.checkpoint_every == 0)) save();
}

}  // namespace athanor
