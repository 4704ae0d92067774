#pragma once

#include <cstdint>
#include <limits>

namespace athanor {

inline constexpr int kMaxParamGroups = 16;

/// The scalars of a training step, on the device the step runs on: kernels read them, the host does not wait
/// for them. Counts *applied* steps: a step skipped for a non-finite gradient changes none of this but
/// `skipped_steps` and the loss scale.
struct StepState {
  std::uint64_t seed = 0;
  std::int64_t applied_steps = 0;
  std::int64_t skipped_steps = 0;
  float learning_rate[kMaxParamGroups] = {};
  float loss_scale = 1.0f;          ///< gradients hold this many times their value
  std::int32_t growth_counter = 0;  ///< applied steps since the scale last changed
  std::int32_t found_inf = 0;       ///< this step's gradients hold a NaN or an infinity
  float grad_norm = 0.0f;           ///< global norm of this step's unscaled gradients
  float clip_coefficient = 1.0f;    ///< what the unscaled gradients are multiplied by
  float clip_value = std::numeric_limits<float>::infinity();  ///< then each is brought into [-value, value]
};

}  // namespace athanor
