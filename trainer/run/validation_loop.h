#pragma once

#include <cstdint>
#include <optional>

#include "trainer/checkpoints/run_checkpoints.h"
#include "trainer/run/step_executor.h"
#include "trainer/samples.h"
#include "trainer/validation.h"

namespace athanor {

/// When a run validates, and what follows.
class ValidationLoop {
 public:
  ValidationLoop(Run& run, StepExecutor& steps, RunCheckpoints& checkpoints);

  /// --sanity-val: detects errors in validation before an epoch is spent.
  void try_out();
  /// Validates what `epochs` have trained, the last perhaps in part.
  void run(std::int64_t epochs);
  bool due_after_epoch() const;
  /// Between two steps, if due; a run resumed from there catches up. False if training ends.
  bool within_epoch();
  void report(const EpochReport& report);
  /// The metrics of the last step's weights, also if validation uses averages; empty if a signal arrived.
  std::optional<Metrics> of_last_step();

 private:
  Run& run_;
  StepExecutor& steps_;
  RunCheckpoints& checkpoints_;
  std::optional<SampleFolder> samples_;
  Validation validation_;
};

}  // namespace athanor
