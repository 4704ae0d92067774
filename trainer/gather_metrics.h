#pragma once

#include <vector>

#include "trainer/metric_sums.h"
#include "trainer/parallel_strategy.h"

namespace athanor {

/// The sums of all ranks, one after the other: a call of all of them, which waits for the device. A rank
/// that has measured nothing takes the others' names over. Throws ArgumentError on all ranks where two have
/// logged other names, or in another order.
std::vector<double> gather(MetricSums& sums, ParallelStrategy& strategy);

}  // namespace athanor
