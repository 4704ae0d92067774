#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "optim/ema.h"
#include "trainer/checkpoints/run_state.h"
#include "trainer/data_pipeline.h"
#include "trainer/frozen_weights.h"
#include "trainer/parallel_strategy.h"

namespace athanor {

/// The networks trained by one optimizer of a task.
class OptimizedNetworks {
 public:
  /// `arena` has their parameters and must outlive this. `first_slot`: Optimizer::first_slot().
  OptimizedNetworks(const OptimizerSpec& spec, ParameterArena& arena, int first_slot,
                    const TrainerConfig& config);

  const std::string name, loss_name;  ///< a single optimizer may have no name
  ParameterArena& arena;
  const std::unique_ptr<Optimizer> optimizer;
  Schedule schedule;
  std::optional<Ema> average;

  void begin_step();
  void begin_pass() { counted_ = false; }
  /// Throws ArgumentError on a second call after begin_pass().
  void count_pass(std::int64_t pass);
  /// After all passes of a step: throws ArgumentError unless all or none of them were counted.
  void check_passes(std::int64_t passes, std::int64_t step) const;
  /// Adds the gradients of a loss, times `weight` and the loss scale, to these networks only.
  void add_gradients(const Tensor& loss, StepBuffer& step, float weight);
  void set_learning_rates(StepBuffer& step) { optimizer->set_learning_rates(step, schedule); }
  /// Updates the weights. Throws ArgumentError if a parameter with a gradient is in no group of the
  /// optimizer, and if the optimizer does not say that it has written weights.
  void update(StepBuffer& step);

 private:
  const bool are_all_;           // networks of the task, so every gradient is needed
  std::vector<int> unselected_;  // parameters that no group of the optimizer selects
  bool counted_ = false;         // in this pass
  std::int64_t passes_ = 0;      // counted passes of the step
  std::int64_t last_ = -1;       // the last of them
};

/// A task's networks, each with its optimizer and learning rates; and its frozen weights.
class RunNetworks {
 public:
  RunNetworks(const TrainerConfig& config, ParallelStrategy& strategy, Task& task)
      : config_(config), strategy_(strategy), task_(task) {}
  ~RunNetworks() { strategy_.detach(); }
  RunNetworks(const RunNetworks&) = delete;
  RunNetworks& operator=(const RunNetworks&) = delete;

  /// Checks the task's optimizers, and gives them learning rates. Throws ArgumentError.
  void make_schedules(std::int64_t total_steps, const DataPipeline& pipeline);
  /// Moves the networks into `memory`, and attaches that to the strategy.
  void make(ModelMemory& memory, PhaseTimes& times);
  /// At the beginning of an epoch: freezes its frozen parts and unfreezes the rest.
  void freeze(std::int64_t epoch);
  /// Learning rates for a run of `steps` steps, which then keep their last value.
  void hold_rates_after(std::int64_t steps, std::int64_t steps_per_epoch);

  const std::vector<std::unique_ptr<OptimizedNetworks>>& all() const { return all_; }
  /// Throws ArgumentError unless the task has several optimizers, and one of this name.
  OptimizedNetworks& called(std::string_view optimizer) const;
  std::vector<const ParameterArena*> arenas() const;
  const FrozenWeights& frozen() const { return *frozen_; }
  std::vector<Schedule> schedules() const;
  /// "sgd", or "generator adam, discriminator adam".
  std::string kinds() const;
  /// Of all trained weights, and of frozen ones if any.
  std::uint64_t weights_hash() const;
  std::vector<StatePart> state_parts() const;
  /// Masters and buffers, frozen ones included.
  StatePart weights_part() const;

 private:
  template <class Of> StatePart part_of_all(const char* prefix, const Of& of, FrozenWeights* frozen) const;

  const TrainerConfig& config_;
  ParallelStrategy& strategy_;
  Task& task_;
  std::vector<OptimizerSpec> specs_;
  std::vector<std::unique_ptr<OptimizedNetworks>> all_;
  FrozenWeights* frozen_ = nullptr;
};

}  // namespace athanor
