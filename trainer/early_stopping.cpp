#include "trainer/early_stopping.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/ranges.h>

#include "optim/load.h"
#include "tensor/base/error.h"
#include "tensor/base/nearest.h"
#include "trainer/trainer.h"

namespace athanor {

EarlyStopRule::Verdict EarlyStopRule::update(double value) {
  const std::int64_t index = seen++;
  if (!std::isfinite(value)) return Verdict::not_finite;
  const auto better = [this](double one, double other) {
    return goal == Goal::minimum ? one < other : one > other;
  };
  if (diverge_at && better(*diverge_at, value)) return Verdict::hopeless;
  const bool reached = stop_at && !better(*stop_at, value);
  if (reached || best_at < 0 || better(goal == Goal::minimum ? value + min_delta : value - min_delta, best)) {
    best = value;
    best_at = index;
    bad_in_a_row = 0;
    return reached ? Verdict::reached : Verdict::improved;
  }
  return ++bad_in_a_row >= patience ? Verdict::stop : Verdict::waiting;
}

void check_metric(const EarlyStop& options, const std::vector<std::string>& measured) {
  ATH_CHECK(std::find(measured.begin(), measured.end(), options.metric) != measured.end(),
            "{}: the metric must be one of {}, but got '{}'{}", options.flag(), fmt::join(measured, ", "),
            options.metric, did_you_mean(options.metric, measured));
}

EarlyStopping::EarlyStopping(const EarlyStop& options, bool keeps)
    : options_(options),
      keeps_(keeps),
      metric_(options.metric),
      rule_{options.goal_or_default(), options.patience, options.min_delta, options.stop_at,
            options.diverge_at} {
  check(options);
}

/// ": restoring the weights of epoch 3 (0.25)"; empty if none were kept.
std::string EarlyStopping::back_to_best() const {
  if (best_epoch_ == 0) return "";
  const std::string where =
      best_step_ > 0 ? fmt::format("step {}", best_step_) : fmt::format("epoch {}", best_epoch_);
  return fmt::format(": restoring the weights of {} ({:.4g})", where, rule_.best);
}

void EarlyStopping::on_validated(Trainer& trainer, const EpochReport& report) {
  last_epoch_ = report.epoch;
  // Unchanged weights cannot have improved: such an epoch does not count against patience.
  if (report.steps.applied == applied_steps_) return;
  applied_steps_ = report.steps.applied;
  // A model with a non-finite loss may still classify some samples correctly; it must not become the best.
  const std::optional<NamedValue> lost = report.not_finite();
  const double value = lost ? lost->value : report.value_of(metric_);
  if (!lost) check_measured(report, value);
  switch (rule_.update(value)) {
    case EarlyStopRule::Verdict::improved: keep(trainer, report); break;
    case EarlyStopRule::Verdict::reached:
      keep(trainer, report);
      trainer.stop(StoppedBy::early_stop,
                   fmt::format("{} has reached {}: it is {:.4g}", metric_, *rule_.stop_at, value));
      break;
    case EarlyStopRule::Verdict::hopeless:
      trainer.stop(StoppedBy::early_stop, fmt::format("{} is {:.4g}, worse than {}{}", metric_, value,
                                                      *rule_.diverge_at, back_to_best()));
      break;
    case EarlyStopRule::Verdict::waiting: break;
    case EarlyStopRule::Verdict::stop:
      trainer.stop(StoppedBy::early_stop,
                   fmt::format("{} has not improved for {} {}{}{}", metric_, rule_.bad_in_a_row,
                               trainer.config().val_every == TrainingLength{1, true} ? "epoch" : "validation",
                               rule_.bad_in_a_row == 1 ? "" : "s", back_to_best()));
      break;
    case EarlyStopRule::Verdict::not_finite:
      trainer.stop(StoppedBy::early_stop,
                   fmt::format("{} is {} after epoch {}{}", lost ? lost->name : metric_, value, report.epoch,
                               back_to_best()));
      break;
  }
}

// A training loss may be non-finite; a validated metric is finite, or was not measured at all.
void EarlyStopping::check_measured(const EpochReport& report, double value) const {
  if (!std::isnan(value) || metric_ == "train_loss") return;
  std::vector<std::string> names{"train_loss"};
  for (const char* name : {"val_loss", "val_accuracy"}) {
    if (!std::isnan(report.value_of(name))) names.emplace_back(name);
  }
  for (const NamedValue& one : report.others) names.push_back(one.name);
  check_metric(options_, names);
}

void EarlyStopping::keep(const Trainer& trainer, const EpochReport& report) {
  if (!keeps_) return;
  best_epoch_ = report.epoch;
  best_step_ = report.whole ? 0 : report.steps.attempted();
  ValidatedModel model = trainer.as_validated();
  const StateDict live = trainer.weights();
  if (best_.empty()) {
    best_ = clone_tensors(live);
  } else {
    load_tensors(best_, live, "early stop");
  }
  model.end();
}

void EarlyStopping::on_train_end(Trainer& trainer) {
  if (best_epoch_ == 0 || rule_.best_at == rule_.seen - 1) return;
  trainer.load_weights(best_);
  trainer.weights_changed();
}

// State ----------------------------------------------------------------------------------------------------

StateDict EarlyStopping::state_dict(const Trainer&) const {
  StateDict state;
  state.set("rule.best", rule_.best);
  state.set("rule.best_at", rule_.best_at);
  state.set("rule.seen", rule_.seen);
  state.set("rule.bad_in_a_row", rule_.bad_in_a_row);
  state.set("best_epoch", best_epoch_);
  if (best_step_ > 0) state.set("best_step", best_step_);
  state.set("last_epoch", last_epoch_);
  state.set("applied_steps", applied_steps_);
  state.set_all("best_weights.", best_);
  return state;
}

void EarlyStopping::load_state_dict(const Trainer& trainer, const StateDict& state) {
  EarlyStopping loaded = *this;
  loaded.rule_.best = state.real("rule.best");
  loaded.rule_.best_at = state.integer("rule.best_at");
  loaded.rule_.seen = state.integer("rule.seen");
  loaded.rule_.bad_in_a_row = state.integer("rule.bad_in_a_row");
  loaded.best_epoch_ = state.integer("best_epoch");
  loaded.best_step_ = state.contains("best_step") ? state.integer("best_step") : 0;
  loaded.last_epoch_ = state.integer("last_epoch");
  loaded.applied_steps_ = state.integer("applied_steps");
  loaded.best_ = {};
  if (loaded.best_epoch_ > 0) {
    loaded.best_ = clone_tensors(trainer.weights());
    load_tensors(loaded.best_, state.under("best_weights."), "early stop");
  }
  state.require_all_used("early stop");
  // It had stopped the run. If the run goes on nevertheless, by its user's wish, it has all its patience
  // again.
  if (loaded.rule_.bad_in_a_row >= loaded.rule_.patience) loaded.rule_.bad_in_a_row = 0;
  *this = std::move(loaded);
}

}  // namespace athanor
