#include "trainer/freezing.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "tensor/error.h"
#include "tensor/nearest.h"

namespace athanor {
namespace {

nn::Module& module_of(nn::Module& networks, const std::string& prefix) {
  const std::vector<nn::NamedModule> named = networks.modules();
  std::vector<nn::Module*> all;  // in the same order
  networks.for_each_module(
      [&](nn::Module& module, const std::vector<Parameter>&) { all.push_back(&module); });
  std::vector<std::string> names, first_level;
  for (std::size_t i = 1; i < named.size(); ++i) {  // the first is the whole network
    if (named[i].name == prefix) return *all[i];
    names.push_back(named[i].name);
    if (named[i].name.find('.') == std::string::npos) first_level.push_back(named[i].name);
  }
  detail::fail<>("--freeze: must be the name of a module, {}, or of one below it, but got '{}'{}",
                 fmt::join(first_level, ", "), prefix, did_you_mean(prefix, names));
}

}  // namespace

void freeze_for_run(nn::Module& networks, std::span<const Freeze> freezes) {
  for (const Freeze& one : freezes) {
    nn::Module& module = module_of(networks, one.prefix);
    if (one.epochs != Freeze::kAlways && module.frozen()) module.unfreeze();
  }
  for (const Freeze& one : freezes) {
    if (one.epochs == Freeze::kAlways) module_of(networks, one.prefix).freeze();
  }
}

void freeze_for_epoch(nn::Module& networks, std::span<const Freeze> freezes, std::int64_t epoch) {
  if (freezes.empty()) return;
  for (const Freeze& one : freezes) {
    nn::Module& module = module_of(networks, one.prefix);
    if (epoch >= one.epochs && module.frozen()) module.unfreeze();
  }
  for (const Freeze& one : freezes) {  // frozen parts inside a released part
    if (epoch < one.epochs) module_of(networks, one.prefix).freeze();
  }
  const std::vector<Parameter> parameters = networks.parameters();
  ATH_CHECK(std::any_of(parameters.begin(), parameters.end(),
                        [](const Parameter& one) { return one.tensor.requires_grad(); }),
            "--freeze: must leave something to train, but everything is frozen in epoch {}", epoch + 1);
}

}  // namespace athanor
