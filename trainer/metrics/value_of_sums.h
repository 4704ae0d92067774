#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace athanor {

/// A value computed from the totals of an epoch over all ranks, such as F1 from sums of hits, or R2. A task
/// declares it (Task::values_of_sums()) and logs what it is computed from, which is then not reported itself:
///
///     {"r2", {"squared_errors", "targets", "squares"}, [](std::span<const double> mean) {
///        return 1 - mean[0] / (mean[2] - mean[1] * mean[1]);
///      }}
struct ValueOfSums {
  std::string name;
  std::vector<std::string> from;                         ///< logged names
  std::function<double(std::span<const double>)> value;  ///< of theirs: sums, or means, as they are logged
};

}  // namespace athanor
