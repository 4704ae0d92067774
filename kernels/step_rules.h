#pragma once

#include <cstdint>
#include <limits>

// What a step does about gradients that are too small, too large, or not finite. Kernels decide it on the
// device, from the StepState and these settings: kernels/update_ops.h.

namespace athanor {

/// How the loss scale follows the gradients. Half-precision gradients below 6e-8 are lost, those above 65504
/// overflow; multiplying the loss by a scale, and dividing it out in f32, moves them into range.
///
///     a gradient is not finite:   the step is skipped;  scale = max(floor, scale * backoff);  counter = 0
///     growth_interval applied:    scale = min(ceiling, scale * growth);                       counter = 0
///
/// Source: Micikevicius et al. 2018, arXiv:1710.03740.
struct LossScaling {
  float initial = 65536;
  float growth = 2;                     ///< at least 1
  float backoff = 0.5f;                 ///< in (0, 1]
  std::int32_t growth_interval = 2000;  ///< applied steps
  float floor = 1;
  float ceiling = 16777216;

  /// The same scale for ever.
  static constexpr LossScaling fixed(float scale) {
    return {.initial = scale, .growth = 1, .backoff = 1, .floor = scale, .ceiling = scale};
  }
  bool is_fixed() const { return growth == 1 && backoff == 1; }
};

/// Skips a step whose gradient norm is more than `z` standard deviations above the mean of the norms of
/// applied steps, both exponential averages. A deviation below 5 % of the mean counts as that much. Infinity:
/// no guard.
struct OutlierGuard {
  float z = std::numeric_limits<float>::infinity();
  float decay = 0.99f;        ///< of the averages
  std::int32_t warm_up = 50;  ///< norms to know before any is called an outlier
  /// After so many outliers in a row the averages begin anew: the norms have moved for good.
  std::int32_t patience = 10;
};

/// How far gradients may go. Infinity: no limit.
struct GradientLimits {
  float max_norm = std::numeric_limits<float>::infinity();   ///< of all gradients together, L2
  float max_value = std::numeric_limits<float>::infinity();  ///< of each, after clipping by norm
  OutlierGuard outliers{};
  /// Of the second update of a step, and of those behind it: where one before had a gradient that was not
  /// finite, it is skipped, too, and the step counts as such.
  bool later_update = false;
};

}  // namespace athanor
