#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace athanor::bench {

/// The value below which about `share` of them lie: 0.5 gives the median. 0 of none.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace athanor::bench
