#pragma once

#include <cstdint>

#include "trainer/callback.h"
#include "trainer/checkpoints/run_state.h"
#include "trainer/metric_sums.h"

// What callbacks are told, made of where a run stands.

namespace athanor {

StepCounts counts_of(const StepState& state);
StepReport report_of(const StepState& state);
/// `seconds` since training began.
StepInfo info_of(const RunPosition& position, double seconds);
/// Of the epoch under way, which took `epoch_s`: all but times, bottleneck and weights.
void fill(EpochReport& report, const RunPosition& position, const StepState& state, const Metrics& training,
          const Metrics& validation, double epoch_s, double seconds);
/// Of the whole run, with its last validation, which may have measured nothing.
FitReport report_of(const RunPosition& position, const StepState& state, const Metrics& test, double seconds);

}  // namespace athanor
