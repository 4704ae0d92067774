#include "data/stratified_split.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

#include "data/in_memory.h"
#include "tensor/base/error.h"
#include "tensor/philox.h"

namespace athanor {
namespace {

/// The indices of each class's samples.
std::map<std::int64_t, std::vector<std::int64_t>> by_class(const Dataset& data) {
  std::map<std::int64_t, std::vector<std::int64_t>> classes;
  for (std::int64_t i = 0; i < data.size(); ++i) classes[data.label(i)].push_back(i);
  return classes;
}

}  // namespace

std::pair<std::unique_ptr<Dataset>, std::unique_ptr<Dataset>> stratified_split(
    std::shared_ptr<const Dataset> source, double fraction, std::uint64_t seed) {
  ATH_CHECK(fraction > 0 && fraction < 1, "split: the validation fraction must be in (0, 1), but got {}",
            fraction);
  std::vector<std::int64_t> first, second;
  for (const auto& [label, samples] : by_class(*source)) {
    const std::int64_t n = std::ssize(samples);
    const auto wanted = std::llround(static_cast<double>(n) * fraction);
    const std::int64_t held_out = n < 2 ? 0 : std::clamp<std::int64_t>(wanted, 1, n - 1);
    const std::vector<std::int64_t> order = philox_permutation(
        n, {seed, random_stream(RandomPurpose::order, static_cast<std::uint64_t>(label), 2)});
    for (std::int64_t i = 0; i < n; ++i)
      (i < held_out ? second : first)
          .push_back(samples[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]);
  }
  ATH_CHECK(!second.empty(), "split: at least one class must have two images, one of them for validation");
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  return {std::make_unique<Subset>(source, std::move(first)),
          std::make_unique<Subset>(source, std::move(second))};
}

}  // namespace athanor
