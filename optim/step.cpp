#include "optim/step.h"

#include <vector>

namespace athanor {
namespace {

std::vector<UpdatePlan::Member> everything(const ParameterArena& arena) {
  std::vector<UpdatePlan::Member> members;
  for (int i = 0; i < arena.size(); ++i) members.push_back({.parameter = i});
  return members;
}

}  // namespace

GradientMeter::GradientMeter(const ParameterArena& arena) : arena_(arena), plan_(arena, everything(arena)) {}

void GradientMeter::measure(StepBuffer& step, const GradientLimits& limits) {
  ATH_CHECK(limits.max_norm > 0 && limits.max_value > 0,
            "clip: limits must be > 0, but got norm {} and value {}", limits.max_norm, limits.max_value);
  on_device(arena_.device(), [&](auto& context) {
    const BoundStep bound(context, step);
    kernels::measure_gradients(context, plan_.refresh(), limits.max_norm, limits.max_value);
  });
}

void finish_step(StepBuffer& step) {
  on_device(step.device(), [&](auto& context) {
    const BoundStep bound(context, step);
    kernels::finish_step(context);
  });
  step.publish();
}

}  // namespace athanor
