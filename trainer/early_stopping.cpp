#include "trainer/early_stopping.h"

#include <cmath>
#include <limits>

#include "optim/load.h"
#include "tensor/error.h"
#include "trainer/trainer.h"

namespace athanor {

EarlyStopRule::EarlyStopRule(Goal goal, std::int64_t patience, bool check_finite)
    : goal_(goal),
      patience_(patience),
      check_finite_(check_finite),
      best_(goal == Goal::minimum ? std::numeric_limits<double>::infinity()
                                  : -std::numeric_limits<double>::infinity()) {
  ATH_CHECK(patience >= 1, "early stop: patience must be at least 1, but got {}", patience);
}

EarlyStopRule::Verdict EarlyStopRule::update(double value) {
  const std::int64_t index = seen_++;
  if (check_finite_ && !std::isfinite(value)) return Verdict::not_finite;
  if (goal_ == Goal::minimum ? value < best_ : value > best_) {
    best_ = value;
    best_at_ = index;
    bad_ = 0;
    return Verdict::improved;
  }
  return ++bad_ >= patience_ ? Verdict::stop : Verdict::waiting;
}

EarlyStopping::EarlyStopping(const EarlyStop& options)
    : metric_(options.metric),
      rule_(options.metric == "val_accuracy" ? EarlyStopRule::Goal::maximum : EarlyStopRule::Goal::minimum,
            options.patience) {
  ATH_CHECK(metric_ == "val_loss" || metric_ == "val_accuracy" || metric_ == "train_loss",
            "early stop: the metric must be val_loss, val_accuracy or train_loss, but got '{}'", metric_);
}

void EarlyStopping::on_epoch_end(Trainer& trainer, const EpochReport& report) {
  last_epoch_ = report.epoch;
  // Weights that have not moved cannot have got better: such an epoch costs no patience.
  if (report.steps.applied == applied_steps_) return;
  applied_steps_ = report.steps.applied;
  // A model whose loss is no number may still be right about some samples: it is not the best for it.
  const double value = metric_ == "val_loss" || !std::isfinite(report.val_loss) ? report.val_loss
                       : metric_ == "val_accuracy"                              ? report.val_accuracy
                                                                                : report.train_loss;
  switch (rule_.update(value)) {
    case EarlyStopRule::Verdict::improved:
      keep(trainer);
      best_epoch_ = report.epoch;
      break;
    case EarlyStopRule::Verdict::waiting: break;
    case EarlyStopRule::Verdict::stop:
      trainer.stop(
          StoppedBy::early_stop,
          fmt::format("{} has not improved for {} epoch{}: back to the weights of epoch {} ({:.4g})", metric_,
                      rule_.bad_in_a_row(), rule_.bad_in_a_row() == 1 ? "" : "s", best_epoch_, rule_.best()));
      break;
    case EarlyStopRule::Verdict::not_finite:
      trainer.stop(
          StoppedBy::early_stop,
          fmt::format("{} is {} after epoch {}{}", std::isfinite(report.val_loss) ? metric_ : "val_loss",
                      value, report.epoch,
                      best_epoch_ ? fmt::format(": back to the weights of epoch {}", best_epoch_) : ""));
      break;
  }
}

void EarlyStopping::keep(const Trainer& trainer) {
  ValidatedModel model = trainer.as_validated();
  const StateDict live = trainer.arena().state_dict();
  if (best_.empty()) {
    best_ = clone_tensors(live);
  } else {
    load_tensors(best_, live, "early stop");
  }
  model.end();
}

void EarlyStopping::on_train_end(Trainer& trainer) {
  if (best_epoch_ == 0 || best_epoch_ == last_epoch_) return;
  trainer.arena().load_state_dict(best_);
  trainer.weights_changed();
}

// State ----------------------------------------------------------------------------------------------------

StateDict EarlyStopRule::state_dict() const {
  StateDict state;
  state.set("best", best_);
  state.set("best_at", best_at_);
  state.set("seen", seen_);
  state.set("bad_in_a_row", bad_);
  return state;
}

void EarlyStopRule::load_state_dict(const StateDict& state) {
  EarlyStopRule loaded = *this;
  loaded.best_ = state.real("best");
  loaded.best_at_ = state.integer("best_at");
  loaded.seen_ = state.integer("seen");
  loaded.bad_ = state.integer("bad_in_a_row");
  *this = loaded;
}

StateDict EarlyStopping::state_dict(const Trainer&) const {
  StateDict state;
  state.set_all("rule.", rule_.state_dict());
  state.set("best_epoch", best_epoch_);
  state.set("last_epoch", last_epoch_);
  state.set("applied_steps", applied_steps_);
  state.set_all("best_weights.", best_);
  return state;
}

void EarlyStopping::load_state_dict(const Trainer& trainer, const StateDict& state) {
  EarlyStopping loaded({metric_, 1});
  loaded.rule_ = rule_;
  const StateDict rule = state.under("rule.");
  loaded.rule_.load_state_dict(rule);
  rule.require_all_used("early stop");
  loaded.best_epoch_ = state.integer("best_epoch");
  loaded.last_epoch_ = state.integer("last_epoch");
  loaded.applied_steps_ = state.integer("applied_steps");
  if (loaded.best_epoch_ > 0) {
    loaded.best_ = clone_tensors(trainer.arena().state_dict());
    load_tensors(loaded.best_, state.under("best_weights."), "early stop");
  }
  state.require_all_used("early stop");
  *this = std::move(loaded);
}

}  // namespace athanor
