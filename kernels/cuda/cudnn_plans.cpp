#include "kernels/cuda/cudnn_plans.h"

namespace athanor::cudnn {

bool permits(const PlanRules& rules, DType dtype, const EngineConfig& config) {
  if (config.has(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) && !rules.runtime_compiled) return false;
  if (config.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) && rules.deterministic) return false;
  // Parts of a sum rounded to the output's type before they are added.
  if (config.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (dtype == DType::f32 && !rules.tf32 &&
      (config.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) || config.has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)))
    return false;
  // Winograd's transforms amplify rounding: by about 3 for 4 x 4 tiles, by hundreds for the larger ones, and
  // a half type would store the transformed values.
  if (config.has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) ||
      config.has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
    return false;
  return !(is_half(dtype) && config.has(CUDNN_NUMERICAL_NOTE_WINOGRAD));
}

cuda::Found<Plan> find_plans(const Graph& graph, const DeviceProperties& device, DType dtype,
                             const PlanRules& rules, std::size_t most) {
  cuda::Found<Plan> found;
  const auto attempt = [&](const auto& f) {
    try {
      f();
    } catch (const BackendError&) {
      found.certain = false;
    }
  };
  // Fallbacks are slow, and take cuDNN 40 ms to list: for what nothing else can do.
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (!found.plans.empty()) break;
    std::vector<EngineConfig> configs;
    attempt([&] { configs = propose(graph, device, mode); });
    for (const EngineConfig& config : configs) {
      if (found.plans.size() >= most) break;
      if (!permits(rules, dtype, config)) continue;
      std::optional<Plan> plan;
      attempt([&] { plan = Plan::make(config, device); });
      if (plan && plan->workspace_bytes() <= rules.workspace_bytes) found.plans.push_back(std::move(*plan));
    }
  }
  return found;
}

}  // namespace athanor::cudnn
