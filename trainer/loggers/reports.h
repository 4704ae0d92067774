#pragma once

#include <cstdint>

#include "trainer/callback.h"
#include "trainer/checkpoints/run_state.h"
#include "trainer/metric_sums.h"

// The arguments of callbacks, from the state of a run.

namespace athanor {

/// Applied and skipped steps, and the last step's figures.
StepCounts counts_of(const StepState& state);
StepReport report_of(const StepState& state);
/// `seconds` since training began.
StepInfo info_of(const RunPosition& position, double seconds);
/// Fills the current epoch's report, after `epoch_s` seconds: all but times, bottleneck and weights.
void fill(EpochReport& report, const RunPosition& position, const StepState& state, const Metrics& training,
          const Metrics& validation, double epoch_s, double seconds);
/// The report of the whole run, with its last validation, if any.
FitReport report_of(const RunPosition& position, const StepState& state, const Metrics& test, double seconds);

}  // namespace athanor
