#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "optim/ema.h"
#include "trainer/data_pipeline.h"
#include "trainer/limits.h"
#include "trainer/step_graphs.h"
#include "trainer/task.h"

namespace athanor {

/// Until its end(), the model has the weights used for validation: its running average, if any. Beginning and
/// end are calls of all ranks; after an exception in between, no other rank is involved.
class ValidatedModel {
 public:
  /// `averages`: those of all networks that have one.
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

/// The metrics of a task over the validation data; without data, none is measured.
class Validation {
 public:
  /// `samples`: null if no pictures are written. `graphs`: null if batches are not captured.
  Validation(Task& task, const DataPipeline& pipeline, ParallelStrategy& strategy, Limits& limits,
             const TrainerConfig& config, SampleFolder* samples = nullptr, StepGraphs* graphs = nullptr)
      : task_(task),
        pipeline_(pipeline),
        strategy_(strategy),
        limits_(limits),
        sums_(config.device, task.values_of_sums()),
        inference_mode_(config.inference_mode),
        samples_(samples),
        graphs_(graphs) {}

  /// Metrics over all ranks; empty if a signal arrived. `epoch` is what Step::epoch() returns; `ranks` as in
  /// StepParts. With `most` >= 0, uses at most that many batches.
  std::optional<Metrics> run(std::int64_t epoch, const std::vector<Ema*>& averages, PhaseTimes& times,
                             const dist::PassNetwork* ranks = nullptr, std::int64_t most = -1);

 private:
  void measure(const Batch& batch, Step& step, const BatchPosition& place);

  Task& task_;
  const DataPipeline& pipeline_;
  ParallelStrategy& strategy_;
  Limits& limits_;
  MetricSums sums_;
  bool inference_mode_;
  SampleFolder* samples_;
  StepGraphs* graphs_;
};

}  // namespace athanor
