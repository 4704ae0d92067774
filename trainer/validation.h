#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trainer/data_pipeline.h"
#include "trainer/limits.h"
#include "trainer/step_graphs.h"
#include "trainer/task.h"
#include "trainer/validated_model.h"

namespace athanor {

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
