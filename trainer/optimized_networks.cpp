#include "trainer/optimized_networks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "optim/step.h"

namespace athanor {

OptimizedNetworks::OptimizedNetworks(const OptimizerSpec& spec, ParameterArena& arena, int first_slot,
                                     Schedule schedule, const TrainerConfig& config)
    : name_(spec.name),
      loss_name_(spec.name + "_loss"),
      arena_(arena),
      schedule_(std::move(schedule)),
      optimizer_(spec.make ? spec.make(arena, first_slot) : make_optimizer(config, arena, first_slot)),
      are_all_(spec.networks.empty()) {
  const std::vector<int> selected = optimizer_->selected();
  for (int i = 0; i < arena.size(); ++i) {
    if (std::find(selected.begin(), selected.end(), i) == selected.end()) unselected_.push_back(i);
  }
  if (config.ema_decay > 0)
    average_.emplace(arena, EmaOptions{.decay = config.ema_decay}).fuse_into(*optimizer_);
}

void OptimizedNetworks::begin_step() {
  arena_.snapshot_buffers();
  arena_.zero_grad();
  passes_ = 0;
  last_ = -1;
}

void OptimizedNetworks::count_pass(std::int64_t pass) {
  ATH_CHECK(!std::exchange(counted_, true),
            "minimize: '{}' must be minimized once per step, but is minimized again", name_);
  if (std::exchange(last_, pass) != pass) ++passes_;
}

// Otherwise the gradients of the other passes would be lost with the step, or weigh too little.
void OptimizedNetworks::check_passes(std::int64_t passes, std::int64_t step) const {
  ATH_CHECK(passes_ == 0 || passes_ == passes,
            "minimize: '{}' must be minimized in all passes of a step (--accumulate) or in none, but was in "
            "{} of {} passes of step {}",
            name_, passes_, passes, step);
}

void OptimizedNetworks::update(StepBuffer& step) {
  for (const int i : unselected_) {
    ATH_CHECK(
        !arena_.has_gradient(i),
        "optimizer: every trained parameter must be in a group, but '{}' has a gradient and is in none of "
        "those of '{}'; add a group that selects it, or freeze() its module",
        arena_.parameters()[static_cast<std::size_t>(i)].name, optimizer_->kind());
  }
  const std::int64_t before = arena_.updates();
  optimizer_->step(step);
  ATH_CHECK(
      arena_.updates() != before,
      "optimizer: step() must call stepped() at its end, or copies of the weights become stale, but that "
      "of '{}' does not",
      optimizer_->kind());
}

void OptimizedNetworks::add_gradients(const Tensor& loss, StepBuffer& step, float weight) {
  backward_scaled(loss, step, weight, are_all_ ? std::span<const Parameter>() : arena_.parameters());
}

}  // namespace athanor
