#include "nn/torch/weight_parts.h"

#include <algorithm>
#include <iterator>

namespace athanor {

bool names_average(std::string_view name) {
  constexpr std::string_view kWords[] = {"ema", "swa", "avg", "average", "averaged"};
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("._"), name.size());
    if (std::find(std::begin(kWords), std::end(kWords), name.substr(0, end)) != std::end(kWords)) return true;
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return false;
}

}  // namespace athanor
