// When a run validates, and the notifications about it.

#include <algorithm>

#include "tensor/error.h"
#include "trainer/gather_metrics.h"
#include "trainer/loggers/reports.h"
#include "trainer/run.h"

namespace athanor {

void Run::validate(std::int64_t epochs) {
  if (pipeline_.held_out()) notify([&](Callback& c) { c.on_validation_begin(trainer_); });
  if (samples_) samples_->begin(epochs);
  const auto metrics =
      validation_.run(std::max<std::int64_t>(epochs - 1, 0), averages(), times_, gathering());
  if (!metrics) return;
  if (pipeline_.held_out()) notify([&](Callback& c) { c.on_validation_end(trainer_, *metrics); });
  position_.validation = *metrics;
  position_.validated = true;
}

void Run::report_validation(const EpochReport& report) {
  if (config_.save_top_k > 0)
    checkpoints_.measured(report.value_of(config_.judged_by()->metric), position_.attempted);
  notify([&](Callback& c) { c.on_validated(trainer_, report); });
}

bool Run::validates_after_epoch() const {
  const bool last = position_.epoch + 1 == config_.epochs || limits_.stopped();
  if (last || !pipeline_.held_out()) return true;
  if (!config_.val_every.is_whole_epochs())
    return position_.attempted % config_.val_every.steps(pipeline_.steps_per_epoch()) == 0;
  return (position_.epoch + 1) % static_cast<std::int64_t>(config_.val_every.count) == 0;
}

// Between two steps; a run resumed from a checkpoint of that moment catches up. False if training ends.
bool Run::validate_within_epoch() {
  if (trying_) return true;
  if (config_.val_every.is_whole_epochs() || !pipeline_.held_out() || position_.validated ||
      position_.attempted == 0 ||
      position_.attempted % config_.val_every.steps(pipeline_.steps_per_epoch()) != 0)
    return true;
  strategy_.complete_weights();
  EpochReport report;
  report.whole = false;
  const double began_s = clock_.seconds(), epoch_s = began_s - position_.epoch_began_s;
  const Metrics training = metrics_.mean(metrics_.joined(gather(metrics_, strategy_)));
  const StepState trained = step_.read();  // before pictures are drawn at random
  validate(position_.epoch + 1);
  if (limits_.signal() != 0) return false;
  fill(report, position_, trained, training, position_.validation, epoch_s, clock_.seconds());
  report_validation(report);
  const double took_s = clock_.seconds() - began_s;  // not training time
  position_.epoch_began_s += took_s;
  part_began_s_ += took_s;
  limits_.agree();
  if (config_.save_top_k > 0) save();  // a resumed run must know whether it had ended
  return !limits_.stopped();
}

// Detects errors in validation before an epoch is spent.
void Run::try_validation() {
  if (config_.sanity_val == 0 || !pipeline_.held_out()) return;
  Validation tried(task_, pipeline_, strategy_, limits_, config_);
  tried.run(position_.epoch, {}, times_, gathering(), config_.sanity_val);
}

// Saves and measures the weights of the last step: validation used the averages instead.
Metrics Run::keep_last() {
  std::optional<Metrics> last = position_.validation;
  if (!position_.validated || !averages().empty()) {
    Validation of_last(task_, pipeline_, strategy_, limits_, config_);
    last = of_last.run(std::max<std::int64_t>(position_.epoch - 1, 0), {}, times_, gathering());
  }
  if (!last) return Metrics::not_measured();  // a signal has arrived
  ModelInfo info = describe_model(weights_hash());
  info.test_loss = last->loss;
  info.test_accuracy = last->accuracy;
  final_weights_.save_last(weights_part().save, std::move(info));
  return *last;
}

}  // namespace athanor
