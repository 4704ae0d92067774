#include "trainer/gather_metrics.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/hash.h"
#include "tensor/base/error.h"

namespace athanor {

// Names are compared by their hash: mostly they are equal, and need no message of their own.
std::vector<double> gather(MetricSums& sums, ParallelStrategy& strategy) {
  const std::uint64_t names = kernels::fnv1a(sums.rows());
  const std::vector<std::uint64_t> of_ranks = strategy.gather(std::span(&names, 1));
  if (std::ranges::count(of_ranks, names) != std::ssize(of_ranks)) {
    const std::vector<std::string> rows = strategy.gather(sums.rows());
    const auto first = std::ranges::find_if(rows, [](const std::string& of) { return !of.empty(); });
    for (auto of = first; of != rows.end(); ++of) {
      ATH_CHECK(of->empty() || *of == *first,
                "log: all ranks must log the same names in the same order, but rank {} has {} and rank {} {}",
                first - rows.begin(), *first, of - rows.begin(), *of);
    }
    if (first != rows.end()) sums.take_names(*first);
  }
  const std::vector<double> mine = sums.read();
  return strategy.gather<double>(mine);
}

}  // namespace athanor
