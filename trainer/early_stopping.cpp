#include "trainer/early_stopping.h"

#include <cmath>
#include <limits>

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
  const double value = metric_ == "val_loss"       ? report.val_loss
                       : metric_ == "val_accuracy" ? report.val_accuracy
                                                   : report.train_loss;
  switch (rule_.update(value)) {
    case EarlyStopRule::Verdict::improved:
      keep(trainer);
      best_epoch_ = report.epoch;
      break;
    case EarlyStopRule::Verdict::waiting: break;
    case EarlyStopRule::Verdict::stop:
      trainer.stop(StoppedBy::early_stop,
                   fmt::format("{} has not improved for {} epochs: back to the weights of epoch {} ({:.4g})",
                               metric_, rule_.bad_in_a_row(), best_epoch_, rule_.best()));
      break;
    case EarlyStopRule::Verdict::not_finite:
      trainer.stop(
          StoppedBy::early_stop,
          fmt::format("{} is {} after epoch {}{}", metric_, value, report.epoch,
                      best_epoch_ ? fmt::format(": back to the weights of epoch {}", best_epoch_) : ""));
      break;
  }
}

void EarlyStopping::keep(const Trainer& trainer) {
  const std::optional<EmaSwap> average = trainer.as_validated();
  const ParameterArena& arena = trainer.arena();
  masters_.resize(arena.parts().size());
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const Tensor& from = arena.parts()[i].masters;
    if (!masters_[i].defined()) masters_[i] = empty_like(from);
    masters_[i].copy_bytes_from(from);
  }
  if (const Tensor& from = arena.flat_buffers(); from.defined()) {
    if (!buffers_.defined()) buffers_ = empty_like(from);
    buffers_.copy_bytes_from(from);
  }
}

void EarlyStopping::on_train_end(Trainer& trainer) {
  if (best_epoch_ == 0 || best_epoch_ == last_epoch_) return;
  ParameterArena& arena = trainer.arena();
  for (std::size_t i = 0; i < masters_.size(); ++i) arena.parts()[i].masters.copy_bytes_from(masters_[i]);
  arena.weights_from_masters();
  arena.bump_weights();
  if (buffers_.defined()) {
    arena.flat_buffers().copy_bytes_from(buffers_);
    arena.bump_buffers();
  }
  trainer.weights_changed();
}

}  // namespace athanor
