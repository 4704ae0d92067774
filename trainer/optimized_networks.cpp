#include "trainer/optimized_networks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "optim/sgd.h"
#include "optim/step.h"

namespace athanor {
namespace {

/// SGD, as the config has it.
std::unique_ptr<Optimizer> make_sgd(const TrainerConfig& config, ParameterArena& arena) {
  // Decay pulls filters and matrices to zero; by default biases, scales and shifts, which are few, are left
  // alone.
  const bool all = config.decay == Decay::all;
  const auto decays = [=](const Parameter& p) { return all || (p.decay && p.tensor.rank() >= 2); };
  std::vector<Sgd::Group> groups;
  for (const bool decay : {true, false}) {
    const auto wanted = [=](const Parameter& p) { return decays(p) == decay; };
    const auto parameters = arena.parameters();
    if (std::none_of(parameters.begin(), parameters.end(), wanted)) continue;
    Sgd::Group group;
    group.parameters = wanted;
    group.options = {.momentum = static_cast<float>(config.momentum),
                     .weight_decay = decay ? static_cast<float>(config.weight_decay) : 0.0f,
                     .nesterov = config.momentum > 0,
                     .decay = config.decay};
    groups.push_back(std::move(group));
  }
  return std::make_unique<Sgd>(arena, groups, 0);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, ParameterArena& arena, int first_slot,
                                          const TrainerConfig& config) {
  if (spec.make) return spec.make(arena, first_slot);
  if (config.optimizer) return config.optimizer(arena);
  return make_sgd(config, arena);
}

}  // namespace

OptimizedNetworks::OptimizedNetworks(const OptimizerSpec& spec, ParameterArena& arena, int first_slot,
                                     Schedule schedule, const TrainerConfig& config)
    : name_(spec.name),
      loss_name_(spec.name + "_loss"),
      arena_(arena),
      schedule_(std::move(schedule)),
      optimizer_(make_optimizer(spec, arena, first_slot, config)),
      are_all_(spec.networks.empty()) {
  if (config.ema_decay > 0)
    average_.emplace(arena, EmaOptions{.decay = config.ema_decay}).fuse_into(*optimizer_);
}

void OptimizedNetworks::begin_step() {
  arena_.snapshot_buffers();
  arena_.zero_grad();
  passes_ = 0;
}

void OptimizedNetworks::count_pass() {
  ATH_CHECK(!std::exchange(counted_, true), "minimize: '{}' must be minimized once a step, but is again",
            name_);
  ++passes_;
}

// What the others have given would be lost with the step, or weigh too little in it.
void OptimizedNetworks::check_passes(std::int64_t passes, std::int64_t step) const {
  ATH_CHECK(
      passes_ == 0 || passes_ == passes,
      "minimize: '{}' must be minimized in all passes of a step (--accumulate), or in none, but was in {} "
      "of the {} of step {}",
      name_, passes_, passes, step);
}

void OptimizedNetworks::add_gradients(const Tensor& loss, StepBuffer& step, float weight) {
  backward_scaled(loss, step, weight, are_all_ ? std::span<const Parameter>() : arena_.parameters());
}

void OptimizedNetworks::update(StepBuffer& step) {
  optimizer_->set_learning_rates(step, schedule_);
  optimizer_->step(step);
}

}  // namespace athanor
