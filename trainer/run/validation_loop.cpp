#include "trainer/run/validation_loop.h"

#include <algorithm>

#include "trainer/loggers/reports.h"

namespace athanor {
namespace {

// A trial run leaves nothing behind.
std::optional<SampleFolder> sample_folder(const Run& run) {
  if (run.config.run_dir.empty() || run.config.fast_dev_run || !run.strategy.is_rank0()) return std::nullopt;
  return SampleFolder(
      run.config.run_dir / "samples" / run.config.phase,
      [&run](const std::string& note) { run.observers.note(note); },
      [&run](const Picture& picture) { run.observers.notify(&Callback::on_picture, picture); });
}

}  // namespace

ValidationLoop::ValidationLoop(Run& run, StepExecutor& steps, RunCheckpoints& checkpoints)
    : run_(run),
      steps_(steps),
      checkpoints_(checkpoints),
      samples_(sample_folder(run)),
      validation_(run.task, run.pipeline, run.strategy, run.limits, run.config,
                  samples_ ? &*samples_ : nullptr, &steps.graphs()) {}

void ValidationLoop::try_out() {
  if (run_.config.sanity_val == 0 || !run_.pipeline.held_out()) return;
  Validation tried(run_.task, run_.pipeline, run_.strategy, run_.limits, run_.config);
  tried.run(run_.position.epoch, {}, run_.times, steps_.gathering(), run_.config.sanity_val);
}

void ValidationLoop::run(std::int64_t epochs) {
  const bool measures = run_.pipeline.held_out() != nullptr;
  if (measures) run_.observers.notify(&Callback::on_validation_begin);
  if (samples_) samples_->begin(epochs);
  const auto metrics =
      validation_.run(std::max<std::int64_t>(epochs - 1, 0), run_.averages(), run_.times, steps_.gathering());
  if (!metrics) return;
  if (measures) run_.observers.notify(&Callback::on_validation_end, *metrics);
  run_.position.validation = *metrics;
  run_.position.validated = true;
}

bool ValidationLoop::due_after_epoch() const {
  const TrainerConfig& config = run_.config;
  const std::int64_t epochs = run_.position.epoch + 1;
  if (epochs == config.epochs || run_.limits.stopped() || !run_.pipeline.held_out()) return true;
  if (!config.val_every.is_whole_epochs())
    return run_.position.attempted % config.val_every.steps(run_.pipeline.steps_per_epoch()) == 0;
  return epochs % static_cast<std::int64_t>(config.val_every.count) == 0;
}

bool ValidationLoop::within_epoch() {
  const TrainerConfig& config = run_.config;
  RunPosition& position = run_.position;
  if (config.val_every.is_whole_epochs() || !run_.pipeline.held_out() || position.validated ||
      position.attempted == 0 ||
      position.attempted % config.val_every.steps(run_.pipeline.steps_per_epoch()) != 0)
    return true;
  run_.strategy.complete_weights();
  EpochReport so_far;
  so_far.whole = false;
  const double began_s = run_.clock.seconds(), epoch_s = began_s - position.epoch_began_s;
  const Metrics training = run_.training_metrics();
  const StepState trained = run_.step.read();  // before pictures are drawn at random
  run(position.epoch + 1);
  if (run_.limits.signal() != 0) return false;
  fill(so_far, position, trained, training, position.validation, epoch_s, run_.clock.seconds());
  report(so_far);
  position.epoch_began_s += run_.clock.seconds() - began_s;  // not training time
  run_.limits.agree();
  if (config.save_top_k > 0) checkpoints_.save();  // a resumed run must know whether it had ended
  return !run_.limits.stopped();
}

void ValidationLoop::report(const EpochReport& report) {
  if (run_.config.save_top_k > 0) checkpoints_.measured(report.value_of(run_.config.judged_by()->metric));
  run_.observers.notify(&Callback::on_validated, report);
}

std::optional<Metrics> ValidationLoop::of_last_step() {
  const RunPosition& position = run_.position;
  if (position.validated && run_.averages().empty()) return position.validation;
  Validation of_last(run_.task, run_.pipeline, run_.strategy, run_.limits, run_.config);
  return of_last.run(std::max<std::int64_t>(position.epoch - 1, 0), {}, run_.times, steps_.gathering());
}

}  // namespace athanor
