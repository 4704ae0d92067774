#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/arena.h"
#include "optim/ema.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "optim/step_buffer.h"
#include "trainer/config.h"
#include "trainer/frozen_weights.h"
#include "trainer/task.h"

namespace athanor {

/// The memory of a task's networks. It outlives the run, as the networks belong to the caller.
struct ModelMemory {
  std::vector<std::unique_ptr<ParameterArena>> arenas;  ///< one for each optimizer
  std::unique_ptr<FrozenWeights> frozen;
};

/// The networks trained by one optimizer, with their arena, the optimizer, its learning rates and their
/// running average. A run has one for each optimizer of its task.
class OptimizedNetworks {
 public:
  /// `arena` holds the networks' parameters and must outlive this. `first_slot`: Optimizer::first_slot().
  /// Throws what the optimizer throws.
  OptimizedNetworks(const OptimizerSpec& spec, ParameterArena& arena, int first_slot, Schedule schedule,
                    const TrainerConfig& config);

  /// The task's name for the optimizer; a single one may have no name.
  const std::string& name() const { return name_; }
  const std::string& loss_name() const { return loss_name_; }
  const Schedule& schedule() const { return schedule_; }
  void set_schedule(Schedule schedule) { schedule_ = std::move(schedule); }
  ParameterArena& arena() const { return arena_; }
  Optimizer& optimizer() const { return *optimizer_; }
  /// Null without a running average.
  Ema* average() { return average_ ? &*average_ : nullptr; }

  void begin_step();
  /// Both restore after a step that is skipped (decided by the device) or dropped.
  void restore_buffers_if_skipped(StepBuffer& step) { arena_.restore_buffers_if_skipped(step); }
  void restore_buffers() { arena_.restore_buffers(); }
  void begin_pass() { counted_ = false; }
  /// Throws ArgumentError on a second call after begin_pass(). A pass that is run again counts once.
  void count_pass(std::int64_t pass);
  /// After all passes of a step: throws ArgumentError unless all or none of them were counted.
  void check_passes(std::int64_t passes, std::int64_t step) const;
  /// Adds the gradients of a loss, times `weight` and the loss scale, to these networks only, whatever else
  /// the loss depends on.
  void add_gradients(const Tensor& loss, StepBuffer& step, float weight);
  void set_learning_rates(StepBuffer& step) { optimizer_->set_learning_rates(step, schedule_); }
  /// Updates the weights from the step's measured gradients; a skipped step changes nothing. The learning
  /// rates must be set. Throws ArgumentError if a parameter with a gradient is in no group of the optimizer,
  /// and if the optimizer does not say that it has written weights.
  void update(StepBuffer& step);

 private:
  std::string name_, loss_name_;
  ParameterArena& arena_;
  Schedule schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<Ema> average_;
  bool are_all_;                 ///< they are all networks of the task, so every gradient is needed
  std::vector<int> unselected_;  ///< parameters that no group of the optimizer selects
  bool counted_ = false;         ///< in this pass
  std::int64_t passes_ = 0;      ///< counted passes of the step
  std::int64_t last_ = -1;       ///< the last of them
};

}  // namespace athanor
