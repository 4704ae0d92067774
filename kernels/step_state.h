#pragma once

#include <cstdint>
#include <limits>

#include "tensor/half.h"

namespace athanor {

/// Groups of parameters that have options of their own, at most, in one optimizer.
inline constexpr int kMaxParamGroups = 16;

/// The scalars of a training step, on the step's device: kernels read them, and the host does not wait for
/// them. Counts *applied* steps: a skipped step changes only the counts of skipped steps and, after an
/// overflow, the loss scale.
struct StepState {
  std::uint64_t seed = 0;
  std::int64_t applied_steps = 0;
  std::int64_t overflow_steps = 0;  ///< skipped because a gradient was not finite
  std::int64_t outlier_steps = 0;   ///< skipped because the gradient norm was an outlier
  float learning_rate[kMaxParamGroups] = {};

  // Of the current step.
  std::int32_t found_inf = 0;                                 ///< a gradient is NaN or infinite
  std::int32_t found_outlier = 0;                             ///< its gradient norm is an outlier
  float grad_norm = 0.0f;                                     ///< global norm of its unscaled gradients
  float clip_coefficient = 1.0f;                              ///< factor of the unscaled gradients
  float clip_value = std::numeric_limits<float>::infinity();  ///< then each is clamped to [-value, value]

  // Loss scaling: see LossScaling.
  float loss_scale = 1.0f;              ///< factor by which gradients are scaled
  std::int32_t growth_counter = 0;      ///< applied steps since the scale last changed
  std::int32_t overflows_at_floor = 0;  ///< consecutive overflows at the minimum scale

  // Gradient norms so far: see OutlierGuard.
  float norm_mean = 0.0f, norm_variance = 0.0f;
  std::int32_t norm_count = 0;         ///< norms in the averages, capped at kManyNorms
  std::int32_t outliers_in_a_row = 0;  ///< skipped since the last applied step

  /// Whether this step is skipped.
  ATH_HD bool skips() const { return found_inf != 0 || found_outlier != 0; }
  ATH_HD std::int64_t attempted_steps() const { return applied_steps + overflow_steps + outlier_steps; }
};

}  // namespace athanor
