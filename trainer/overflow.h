#pragma once

#include <cstdint>
#include <functional>

#include "optim/arena.h"
#include "trainer/parallel_strategy.h"

namespace athanor {

/// After a step: if `patience` consecutive steps known to all ranks have overflowed at the lowest loss scale,
/// finds the parameter and op, and throws DivergedError on all ranks. `repeat` repeats the last step's passes
/// on this rank alone.
void check_overflows(const StepState& known, std::int64_t patience, const StepBuffer& step,
                     const std::vector<const ParameterArena*>& arenas, ParallelStrategy& strategy,
                     const std::function<void()>& repeat);

}  // namespace athanor
