#include "trainer/gather_metrics.h"

#include <algorithm>
#include <string>

#include "tensor/error.h"

namespace athanor {

std::vector<double> gather(MetricSums& sums, ParallelStrategy& strategy) {
  const std::vector<std::string> rows = strategy.gather(sums.rows());
  const auto first =
      std::find_if(rows.begin(), rows.end(), [](const std::string& of) { return !of.empty(); });
  for (auto of = first; of != rows.end(); ++of) {
    ATH_CHECK(of->empty() || *of == *first,
              "log: all ranks must log the same names in the same order, but rank {} has {} and rank {} {}",
              first - rows.begin(), *first, of - rows.begin(), *of);
  }
  if (first != rows.end()) sums.take_names(*first);
  const std::vector<double> mine = sums.read();
  return strategy.gather<double>(mine);
}

}  // namespace athanor
