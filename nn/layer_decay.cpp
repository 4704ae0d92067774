#include "nn/layer_decay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <typeindex>
#include <vector>

#include "nn/sequential.h"
#include "tensor/base/error.h"

namespace athanor::nn {
namespace {

bool is_below(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

/// The names of the model's blocks, in declared order.
std::vector<std::string> blocks_of(const Module& model) {
  const std::vector<NamedModule> all = model.modules();  // parents first
  std::map<std::type_index, int> count;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const bool has_parts = i + 1 < all.size() && is_below(all[i + 1].name, all[i].name);
    const Module& module = *all[i].module;
    if (has_parts && !dynamic_cast<const Sequential*>(&module)) ++count[typeid(module)];
  }
  std::vector<std::string> blocks;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const Module& module = *all[i].module;
    const auto found = count.find(typeid(module));
    if (found == count.end() || found->second < 2) continue;
    if (blocks.empty() || !is_below(all[i].name, blocks.back())) blocks.push_back(all[i].name);
  }
  return blocks;
}

}  // namespace

void set_layer_decay(Module& model, double decay) {
  ATH_CHECK(decay > 0 && decay <= 1, "layer decay: must be in (0, 1], but got {}", decay);
  const std::vector<std::string> blocks = blocks_of(model);
  ATH_CHECK(!blocks.empty(), "layer decay: the model must have several blocks of one type, but has none");
  const std::size_t last = blocks.size() + 1;
  std::map<std::string, std::size_t> layers;  // 0: before the first block; block i is layer i + 1
  std::size_t begun = 0;                      // blocks that have begun
  for (const Parameter& parameter : model.parameters()) {
    const auto block =
        std::find_if(blocks.begin() + static_cast<std::ptrdiff_t>(begun > 0 ? begun - 1 : 0), blocks.end(),
                     [&](const std::string& name) { return is_below(parameter.name, name); });
    if (block != blocks.end()) begun = static_cast<std::size_t>(block - blocks.begin()) + 1;
    layers[parameter.name] = block == blocks.end() && begun == blocks.size() ? last : begun;
  }
  model.scale_learning_rates([&](const std::string& name) {
    const auto layer = layers.find(name);
    if (layer == layers.end()) return 1.0f;  // tied: its first name counts
    return static_cast<float>(std::pow(decay, static_cast<double>(last - layer->second)));
  });
}

}  // namespace athanor::nn
