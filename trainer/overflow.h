#pragma once

#include <cstdint>
#include <functional>

#include "optim/arena.h"
#include "trainer/parallel_strategy.h"

namespace athanor {

/// After a step: where `patience` steps in a row have overflowed at the lowest loss scale, as far as all
/// ranks know, says whose gradients they were and in which op: throws DivergedError, on all of them. `repeat`
/// does the last step's passes once more, on this rank alone.
void check_overflows(const StepState& known, std::int64_t patience, const StepBuffer& step,
                     const std::vector<const ParameterArena*>& arenas, ParallelStrategy& strategy,
                     const std::function<void()>& repeat);

}  // namespace athanor
