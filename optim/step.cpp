#include "optim/step.h"

#include <cmath>

#include "autograd/engine.h"
#include "kernels/on_device.h"
#include "kernels/update.h"

namespace athanor {
GradientMeter::GradientMeter(const ParameterArena& arena) : arena_(arena), plan_(arena) {}

void GradientMeter::measure(StepBuffer& step, const GradientLimits& limits) {
  check(limits);
  with_step(step, [&](auto& context) { kernels::measure_gradients(context, plan_.refresh(), limits); });
}

void backward_scaled(const Tensor& loss, StepBuffer& step, float weight,
                     std::span<const Parameter> parameters) {
  const Tensor seed = Tensor::empty(loss.shape(), {DType::f32, loss.device()});
  with_step(step, [&](auto& context) { kernels::loss_seed(context, seed, weight); });
  backward(loss, seed, {.parameters = parameters});
}

void count_step(StepBuffer& step, const LossScaling& scaling, const OutlierGuard& outliers) {
  with_step(step, [&](auto& context) { kernels::finish_step(context, scaling, outliers); });
}

void finish_step(StepBuffer& step, const LossScaling& scaling, const OutlierGuard& outliers) {
  count_step(step, scaling, outliers);
  step.publish();
}

void check(const LossScaling& scaling) {
  const auto positive = [](float value) { return std::isfinite(value) && value > 0; };
  ATH_CHECK(positive(scaling.floor) && scaling.floor <= scaling.initial &&
                scaling.initial <= scaling.ceiling && positive(scaling.ceiling),
            "loss scale: must satisfy 0 < floor <= initial <= ceiling, but got {}, {} and {}", scaling.floor,
            scaling.initial, scaling.ceiling);
  ATH_CHECK(positive(scaling.growth) && scaling.growth >= 1 && scaling.backoff > 0 && scaling.backoff <= 1,
            "loss scale: growth must be at least 1 and backoff in (0, 1], but got {} and {}", scaling.growth,
            scaling.backoff);
  ATH_CHECK(scaling.growth_interval >= 1, "loss scale: growth_interval must be at least 1, but got {}",
            scaling.growth_interval);
}

void check(const GradientLimits& limits) {
  ATH_CHECK(limits.max_norm > 0 && limits.max_value > 0,
            "clip: limits must be > 0, but got norm {} and value {}", limits.max_norm, limits.max_value);
  const OutlierGuard& guard = limits.outliers;
  ATH_CHECK(
      guard.z > 0 && guard.decay >= 0 && guard.decay < 1 && guard.warm_up >= 1 && guard.patience >= 1,
      "outliers: z must be > 0, decay in [0, 1), warm_up and patience at least 1, but got {}, {}, {}, {}",
      guard.z, guard.decay, guard.warm_up, guard.patience);
}

}  // namespace athanor
