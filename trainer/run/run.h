#pragma once

#include <cstdint>
#include <vector>

#include "optim/step_buffer.h"
#include "trainer/data_pipeline.h"
#include "trainer/limits.h"
#include "trainer/metric_sums.h"
#include "trainer/run/networks.h"
#include "trainer/run/observers.h"
#include "trainer/run/run_dir.h"

namespace athanor {

LossScaling loss_scaling_of(const TrainerConfig& config);

/// What the parts of one training share. Trainer::fit() creates it, and then a TrainingLoop on it.
struct Run {
  /// `memory` receives the networks' parameters. Checks that all ranks have the same settings.
  Run(const Observers& who, const TrainerConfig& how, RunDir& where, ParallelStrategy& ranks,
      ModelMemory& memory, Task& what, const Dataset& train_on, const Dataset* validate_on);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const TrainerConfig& config;
  RunDir& dir;
  ParallelStrategy& strategy;
  Observers observers;
  RunClock clock;
  Limits limits;
  RunPosition position;
  PhaseTimes times;
  Task& task;
  const Dataset& train;
  const Dataset* held_out;
  DataPipeline pipeline;
  RunNetworks networks;
  std::vector<Setting> settings;
  StepBuffer step;
  MetricSums metrics;
  std::int64_t syncs_before = 0;  ///< the run's first step

  std::int64_t total_steps() const;
  /// The settings, if learning rates are made for that many steps: an extended run keeps those that it had,
  /// and then holds the last of them.
  const std::vector<Setting>& plan(std::int64_t schedule_steps);
  void scale_learning_rates(double factor);
  void weights_changed();
  /// The epoch's metrics so far, over all ranks.
  Metrics training_metrics();
  /// The running averages that validation uses.
  std::vector<Ema*> averages() const;
  /// Settings, position and step: loading continues the data from that position.
  std::vector<StatePart> state_parts();
};

}  // namespace athanor
