#pragma once  // Explained in docs/zero1_equals_ddp.md.

#include <span>

#include "autograd/parameter.h"
#include "kernels/on_device.h"
#include "kernels/step_rules.h"
#include "optim/arena.h"
#include "optim/plan.h"
#include "optim/step_buffer.h"

// The optimizer's part of a training step:
//
//     arena.buffers().snapshot();                       // where gradients may be non-finite
//     arena.zero_grad();
//     backward_scaled(loss of a forward pass, step);
//     meter.measure(step, limits);                      // norm, found_inf, clip coefficient
//     optimizer.set_learning_rates(step, schedule);
//     optimizer.step(step);
//     ema.update(step);
//     arena.buffers().restore_if_skipped(step);
//     finish_step(step, scaling, limits.outliers);

namespace athanor {

/// While alive, kernels of `context` read their scalars from `step`.
template <class Context> class BoundStep {
 public:
  BoundStep(Context& context, StepBuffer& step) : context_(context), before_(context.step()) {
    context.bind_step(step.data());
  }
  ~BoundStep() { context_.bind_step(before_); }
  BoundStep(const BoundStep&) = delete;
  BoundStep& operator=(const BoundStep&) = delete;

 private:
  Context& context_;
  StepState* before_;
};

/// Calls f(context) with the context of the step's device, whose kernels then read their scalars from `step`.
template <class F> void with_step(StepBuffer& step, const F& f) {
  on_device(step.device(), [&](auto& context) {
    const BoundStep bound(context, step);
    f(context);
  });
}

/// Measures the gradients of an arena in one pass: their global norm, and whether all are finite. It writes
/// no gradients: the update applies the limits through the coefficient.
class GradientMeter {
 public:
  explicit GradientMeter(const ParameterArena& arena);

  /// Sets grad_norm, found_inf, found_outlier, clip_coefficient = min(1, max_norm / (norm + 1e-6)) and
  /// clip_value of `step`. The norm is over the unscaled gradients of all parameters that have one. Throws
  /// ArgumentError on a limit out of range. Source: Pascanu et al. 2013, arXiv:1211.5063.
  void measure(StepBuffer& step, const GradientLimits& limits = {});

 private:
  const ParameterArena& arena_;
  UpdatePlan plan_;
};

/// backward() of a loss (one f32 element) times `weight` and the loss scale of `step`. Gradients of
/// micro-batches, and of ranks, are summed: for their mean, weigh each by its share of the samples
/// (dist::batch_weight() on several ranks). With `parameters`, only these collect gradients, as with
/// BackwardOptions::parameters.
void backward_scaled(const Tensor& loss, StepBuffer& step, float weight = 1,
                     std::span<const Parameter> parameters = {});

/// Counts the step as applied or skipped, and updates the loss scale: the device's part of finish_step(). A
/// captured step ends with it; StepBuffer::publish() then follows each launch.
void count_step(StepBuffer& step, const LossScaling& scaling, const OutlierGuard& outliers);

/// Counts the step as applied or skipped, updates the loss scale, and notifies the host.
void finish_step(StepBuffer& step, const LossScaling& scaling = LossScaling::fixed(1),
                 const OutlierGuard& outliers = {});

/// Throw ArgumentError naming the setting out of range.
void check(const LossScaling& scaling);
void check(const GradientLimits& limits);

}  // namespace athanor
