#pragma once

#include <vector>

#include "trainer/metric_sums.h"
#include "trainer/parallel_strategy.h"

namespace athanor {

/// The sums of all ranks, concatenated: a call of all ranks, which waits for the device. A rank without
/// measurements adopts the names of the others. Throws ArgumentError on all ranks if two have logged
/// different names, or another order.
std::vector<double> gather(MetricSums& sums, ParallelStrategy& strategy);

}  // namespace athanor
