#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "optim/ema.h"
#include "trainer/feeding.h"
#include "trainer/limits.h"
#include "trainer/task.h"

namespace athanor {

/// Until its end(), the model is what validation sees: its running average, where there is one. Both ends are
/// calls of all ranks; an exception between them asks the others for nothing.
class ValidatedModel {
 public:
  /// `averages`: of each network that has one.
  ValidatedModel(const std::vector<Ema*>& averages, ParallelStrategy& strategy) : strategy_(strategy) {
    if (averages.empty()) return;
    strategy_.complete_weights();
    for (Ema* const average : averages) swaps_.push_back(std::make_unique<EmaSwap>(*average));
    strategy_.complete_weights();
  }
  void end() {
    if (swaps_.empty()) return;
    for (const auto& swap : swaps_) swap->end();
    swaps_.clear();
    strategy_.complete_weights();
  }

 private:
  ParallelStrategy& strategy_;
  std::vector<std::unique_ptr<EmaSwap>> swaps_;
};

/// The metrics of a task over all that is held out; where nothing is, none was measured.
class Validation {
 public:
  /// `samples`: null where no pictures are wanted.
  Validation(Task& task, const Feeding& feeding, ParallelStrategy& strategy, Limits& limits, Device device,
             SampleFolder* samples = nullptr)
      : task_(task),
        feeding_(feeding),
        strategy_(strategy),
        limits_(limits),
        sums_(device),
        samples_(samples) {}

  /// Of all ranks together; nothing where a signal came meanwhile. `epoch` is what Step::epoch() returns.
  /// `ranks` as StepParts has them. With `most` >= 0, of so many batches at most.
  std::optional<Metrics> run(std::int64_t epoch, const std::vector<Ema*>& averages, PhaseTimes& times,
                             const dist::PassNetwork* ranks = nullptr, std::int64_t most = -1);

 private:
  void measure(const Batch& batch, Step& step, std::int64_t of_ranks);

  Task& task_;
  const Feeding& feeding_;
  ParallelStrategy& strategy_;
  Limits& limits_;
  MetricSums sums_;
  SampleFolder* samples_;
};

}  // namespace athanor
