#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/cuda/cudnn_plans.h"

// Batch normalisation in training as cuDNN graphs. Their engines are all compiled at run time, so they are
// for those who set PlanRules::runtime_compiled.

namespace athanor::cudnn {

/// Images [n, h, w, c], dense, of `dtype`; vectors [c] f32.
struct NormSignature {
  enum class Pass : std::uint8_t { forward, backward };

  Pass pass = Pass::forward;
  DType dtype = DType::f32;
  bool residual = false;  ///< forward: y = relu(norm(x) + residual); cuDNN has no sum without a relu
  bool relu = false;      ///< forward; cuDNN 9.19 has no backward pass with a relu
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  std::int64_t alignment = 16;  ///< the least of any address
  PlanRules rules;

  bool operator==(const NormSignature&) const = default;
  std::size_t hash() const;
  std::string str() const;
};

/// Pointers, forward: x, scale, bias, epsilon (host f32), momentum (host f32), running mean, running variance
/// (old), mean, 1 / deviation, running mean, running variance (new; may be the old), residual where there is
/// one, y.
/// Backward: dy, x, scale, mean, 1 / deviation, dscale, dbias, dx.
Graph norm_graph(const NormSignature& signature);

cuda::Found<Plan> find_norm_plans(const NormSignature& signature, const DeviceProperties& device,
                                  std::size_t most);

}  // namespace athanor::cudnn
