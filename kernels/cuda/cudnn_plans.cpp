#include "kernels/cuda/cudnn_plans.h"

#include <algorithm>
#include <map>
#include <utility>

namespace athanor::cudnn {

bool permits(const PlanRules& rules, DType dtype, const EngineConfig& config) {
  if (config.has(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)) return false;
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

std::vector<std::size_t> spread(std::span<const std::int64_t> engines) {
  std::map<std::int64_t, int> seen;
  std::vector<std::pair<int, std::size_t>> order;  // how many of its engine come before, place in the list
  for (std::size_t i = 0; i < engines.size(); ++i) order.emplace_back(seen[engines[i]]++, i);
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> places;
  for (const auto& [before, place] : order) places.push_back(place);
  return places;
}

cuda::Found<Plan> find_plans(Graph graph, const Target& target, DType dtype, const PlanRules& rules,
                             std::size_t most) {
  cuda::Found<Plan> found;
  const auto attempt = [&](const auto& f) {
    try {
      f();
    } catch (const BackendError& error) {
      if (found.certain) found.why = error.what();
      found.certain = false;
    }
  };
  if (target.handle) attempt([&] { graph.finalize(target.handle); });
  if (!found.certain) return found;
  // Fallbacks are slow, and take cuDNN 40 ms to list: for what nothing else can do.
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (!found.plans.empty()) break;
    std::vector<EngineConfig> configs;
    attempt([&] { configs = propose(graph, target, mode); });
    std::erase_if(configs, [&](const EngineConfig& config) { return !permits(rules, dtype, config); });
    std::vector<std::int64_t> engines;
    for (const EngineConfig& config : configs) engines.push_back(config.engine());
    for (const std::size_t i : spread(engines)) {
      if (found.plans.size() >= most) break;
      std::optional<Plan> plan;
      attempt([&] { plan = Plan::make(configs[i], target); });
      if (plan && plan->workspace_bytes() <= rules.workspace_bytes) found.plans.push_back(std::move(*plan));
    }
  }
  return found;
}

}  // namespace athanor::cudnn
