#pragma once

#include <cstdint>
#include <limits>

// How a step handles gradients that are too small, too large, or not finite. Kernels decide it on the device,
// from the StepState and these settings: kernels/update_ops.h.

namespace athanor {

/// How the loss scale adapts to the gradients. Half-precision gradients below 6e-8 are lost, those above
/// 65504 overflow; multiplying the loss by a scale, and dividing it out in f32, moves them into range.
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

  /// A constant scale.
  static constexpr LossScaling fixed(float scale) {
    return {.initial = scale, .growth = 1, .backoff = 1, .floor = scale, .ceiling = scale};
  }
  bool is_fixed() const { return growth == 1 && backoff == 1; }
};

/// Skips a step whose gradient norm exceeds the mean norm of applied steps by more than `z` standard
/// deviations; both are exponential averages. The deviation counts as at least 5 % of the mean. Infinity: no
/// guard.
struct OutlierGuard {
  float z = std::numeric_limits<float>::infinity();
  float decay = 0.99f;        ///< of the averages
  std::int32_t warm_up = 50;  ///< norms to see before any can be an outlier
  /// After this many outliers in a row the averages restart: the norms have shifted permanently.
  std::int32_t patience = 10;
};

/// Limits on gradients. Infinity: no limit.
struct GradientLimits {
  float max_norm = std::numeric_limits<float>::infinity();   ///< L2 norm of all gradients together
  float max_value = std::numeric_limits<float>::infinity();  ///< of each value, after clipping by norm
  OutlierGuard outliers{};
  /// Set for the second and later updates of a step: if an earlier one had a gradient that was not finite,
  /// this one is skipped too, and the step counts as skipped.
  bool later_update = false;
};

}  // namespace athanor
