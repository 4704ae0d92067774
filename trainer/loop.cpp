// The whole of training: epochs of steps, the passes and the update of a step, and the work between them.

#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/node.h"
#include "kernels/on_device.h"
#include "kernels/random_op.h"
#include "optim/step.h"
#include "tensor/counters.h"
#include "trainer/loggers/reports.h"
#include "trainer/run.h"

namespace athanor {

FitReport Run::train() {
  begin();
  // In a resumed run, an epoch with all steps done may still have to be reported.
  while (position_.epoch < config_.epochs && (!limits_.stopped() || position_.epoch_steps > 0)) {
    begin_epoch();
    while (!limits_.stopped() && train_step()) {
      notify([&](Callback& c) { c.on_step_end(trainer_, info_of(position_, clock_.seconds())); });
      report_unused_parameters();
      limits_.after_step(position_.attempted);
      check_overflows(strategy_.known(step_), overflow_patience());
      if (limits_.take_save_request() || save_is_due()) {
        limits_.agree(true);  // a resumed run must know whether it had ended
        save();
      }
      strategy_.publish_weights();
    }
    end_epoch();
  }
  return finish();
}

// One step, as in optim/step.h; false at the end of the epoch, or if ranks have agreed to stop.
bool Run::train_step() {
  const std::int64_t samples = pipeline_.samples_of_step(position_.epoch_samples);
  if (samples == 0 || !validate_within_epoch()) return false;
  const std::optional<ForbidSync> forbid =
      config_.forbid_sync ? std::optional<ForbidSync>(std::in_place) : std::nullopt;
  const auto timed = times_.scope(&Times::update);
  const double waited_s = step_.waited_s();
  frozen_.check();
  notify([&](Callback& c) { c.on_step_begin(trainer_, info_of(position_, clock_.seconds())); });
  run_passes(samples);
  if (now_.dropped) return drop_step();
  settle_metrics(samples);
  step_.publish();
  times_.move(step_.waited_s() - waited_s, &Times::update, &Times::device);
  position_.epoch_samples += samples;
  ++position_.attempted;
  ++position_.epoch_steps;
  position_.validated = false;
  return true;
}

void Run::run_passes(std::int64_t samples, bool updates) {
  begin_passes(samples, updates);
  Batch batch;  // this rank's part
  for (std::int64_t done = 0; done < samples; done += config_.batch_size) {
    pipeline_.next(batch, times_);
    now_.pass = place_of_pass(done, updates);
    now_.updates = updates && done + config_.batch_size >= samples;
    graphs_.pass(batch, position_.epoch, [this](const Batch& there) { run_work(there); });
  }
  graphs_.end();
  if (!updates || returns_loss()) return;
  const std::int64_t passes = (samples + config_.batch_size - 1) / config_.batch_size;
  for (const auto& networks : networks_) networks->check_passes(passes, position_.attempted);
}

// A pass, with the work before the first one and after the last: what a graph captures.
void Run::run_work(const Batch& batch) {
  now_.made = 0;
  if (now_.pass.pass == 0) {
    metrics_.snapshot();
    for (const auto& networks : networks_) networks->begin_step();
    // Random numbers depend on the applied steps and on the index of the op within the step.
    on_device(config_.device, [](auto& context) { context.set_random_ops(0); });
  }
  // Ranks without samples contribute zeros, unless other ranks expect messages of their passes.
  if (batch.size() > 0 || now_.joins) position_.attempted > 0 ? run_pass(batch) : run_first_pass(batch);
  if (now_.updates && returns_loss()) update(*networks_[0]);
  if (!now_.updates || now_.dropped) return;
  for (const auto& networks : networks_) networks->restore_buffers_if_skipped(step_);
  count_step(step_, scaling_, gradient_limits_.outliers);
}

void Run::run_pass(const Batch& batch) {
  const SampleScope samples({now_.pass.first, now_.pass.samples});
  for (const auto& networks : networks_) networks->begin_pass();
  const Tensor loss = [&] {
    const auto timed = times_.scope(&Times::forward);
    const Batch prepared = [&] {
      const auto copying = times_.scope(&Times::copy);
      return pipeline_.prepare(batch, now_.pass);
    }();
    const AllocTag named("activations");
    now_.first_node = Node::next_sequence();
    Step step(now_.pass, now_.draws,
              {.metrics = metrics_, .times = times_, .minimizer = this, .ranks = gathering()});
    Tensor mean = task_.training_step(prepared, step);
    check_result(mean);
    if (returns_loss() && !step.has_logged_loss()) step.log("loss", mean);
    times_.move(strategy_.take_waited_s(), &Times::forward, &Times::communication);
    return mean;
  }();
  if (returns_loss()) add_gradients(*networks_[0], loss);
}

void Run::update(OptimizedNetworks& networks) {
  const auto timed = times_.scope(&Times::update);
  GradientLimits limits = gradient_limits_;
  limits.later_update = now_.made > 0;
  ++now_.made;
  now_.dropped = limits_.take(strategy_.reduce(networks.arena(), step_, limits));
  if (now_.dropped) return;  // the votes say that the previous step was the last one
  if (!graphs_.sets_rates_of(networks)) networks.set_learning_rates(step_);
  networks.update(step_);
  if (!overlaps_weights_) strategy_.complete_weights();
  if (Ema* const average = networks.average()) average->update(step_);
}

void Run::end_epoch() {
  strategy_.complete_weights();
  limits_.agree(true);
  const StepState last = [&] {
    const auto timed = times_.scope(&Times::device);
    return step_.read();
  }();
  const double epoch_s = clock_.seconds() - position_.epoch_began_s;
  EpochReport report = pipeline_.begin_report(
      times_.total() - times_before_, clock_.seconds() - part_began_s_, position_.attempted - steps_before_);
  if (std::string line = describe_tuning(vendor_ - vendor_before_); !line.empty())
    report.notes.push_back(std::move(line));
  vendor_before_ = vendor_;
  check_overflows(last, std::min(overflow_patience(), position_.epoch_steps));
  // Whether the epoch is complete or reported stays the same in a resumed run.
  const bool whole = position_.epoch_samples == pipeline_.samples_per_epoch();
  if (!whole) save();
  const bool reported = limits_.signal() == 0 && report_epoch(std::move(report), epoch_s);
  if (!reported) save();
  limits_.agree();  // a callback may have requested a stop
  position_.train_s += epoch_s;
  position_.trained_samples += position_.epoch_samples;
  position_.epoch_samples = position_.epoch_steps = 0;
  ++position_.epoch;
  const bool over = limits_.stopped() || position_.epoch == config_.epochs;
  const bool due = over || config_.saves_each_epoch() || checkpoints_.due(position_.attempted);
  if (reported && whole && due) save();
}

}  // namespace athanor
