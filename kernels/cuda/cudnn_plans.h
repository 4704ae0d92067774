#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/cudnn_backend.h"
#include "kernels/cuda/found.h"

// Which of the plans cuDNN proposes we take.

namespace athanor::cudnn {

struct PlanRules {
  bool tf32 = false;
  bool deterministic = false;
  std::size_t workspace_bytes = std::size_t{256} << 20;  ///< a plan that needs more is not taken

  bool operator==(const PlanRules&) const = default;
};

/// Whether an engine does what our kernels promise for that dtype: sums in f32; f32 factors as they are,
/// unless tf32 is allowed; none of the transforms whose error grows with their tile. Nor is it one that cuDNN
/// compiles when a plan is made, which takes 1 to 2 s each time.
bool permits(const PlanRules& rules, DType dtype, const EngineConfig& config);

/// An order that begins with the first entry of every engine, then has the second of every engine, and so on:
/// cuDNN lists an engine's configurations together, and the best of another engine may be far down.
std::vector<std::size_t> spread(std::span<const std::int64_t> engines);

/// Up to `most` plans for a graph over tensors of `dtype`, spread over engines, cuDNN's favourite first;
/// empty where it has none. Engines that fail for another reason than that they do not support the graph are
/// passed over.
cuda::Found<Plan> find_plans(Graph graph, const Target& target, DType dtype, const PlanRules& rules,
                             std::size_t most);

}  // namespace athanor::cudnn
