#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/vendor_stats.h"
#include "trainer/checkpoints/final_weights.h"
#include "trainer/checkpoints/run_checkpoints.h"
#include "trainer/finders/lr_finder.h"
#include "trainer/run/validation_loop.h"

namespace athanor {

/// The whole of training, on a run whose folder has been chosen.
class TrainingLoop {
 public:
  explicit TrainingLoop(Run& run);

  FitReport train();
  /// Answers --find-lr instead.
  FitReport answer();
  /// time_steps() of the first ones. The run is over afterwards.
  std::vector<double> time_first_steps(int warm, int steps, double at_most_s);

  // For the Trainer.
  Run& run() { return run_; }
  LrCurve find_lr(const LrRange& range);
  std::string last_checkpoint() const { return checkpoints_.last(); }

 private:
  void begin();
  void begin_epoch();
  bool train_step();
  void after_step();
  void end_epoch();
  EpochReport measure_training();
  bool report_epoch(EpochReport report, double epoch_s);
  FitReport finish();
  VendorStats vendor_stats_of_run() const;

  Run& run_;
  RunPosition& position_;
  StepExecutor steps_;
  RunCheckpoints checkpoints_;
  FinalWeights final_weights_;
  ValidationLoop validation_;
  std::optional<VendorNotes> vendor_notes_;
  const VendorStats vendor_before_;

  // At the beginning of this process's part of the epoch.
  struct Began {
    Times times;
    std::int64_t steps = 0;
    double after_s = 0;  // in the epoch
    VendorStats vendor;
  } began_;
};

}  // namespace athanor
