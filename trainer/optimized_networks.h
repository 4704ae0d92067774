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

/// The memory of a task's networks. It outlives their run: they are the caller's.
struct ModelMemory {
  std::vector<std::unique_ptr<ParameterArena>> arenas;  ///< one for each optimizer
  std::unique_ptr<FrozenWeights> frozen;
};

/// The networks that one optimizer trains, with all it takes to update them: their arena, the optimizer, its
/// learning rates, and their running average. A run has one of these for each optimizer of its task.
class OptimizedNetworks {
 public:
  /// `arena` holds the networks' parameters, and must outlive this. `first_slot`: Optimizer::first_slot().
  /// Throws what the optimizer throws.
  OptimizedNetworks(const OptimizerSpec& spec, ParameterArena& arena, int first_slot, Schedule schedule,
                    const TrainerConfig& config);

  /// As the task calls the optimizer; the only one may have no name.
  const std::string& name() const { return name_; }
  const std::string& loss_name() const { return loss_name_; }
  const Schedule& schedule() const { return schedule_; }
  void set_schedule(Schedule schedule) { schedule_ = std::move(schedule); }
  ParameterArena& arena() const { return arena_; }
  Optimizer& optimizer() const { return *optimizer_; }
  /// Null where there is none.
  Ema* average() { return average_ ? &*average_ : nullptr; }

  void begin_step();
  /// Both for a step that is skipped, as the device knows, or comes to nothing.
  void restore_buffers_if_skipped(StepBuffer& step) { arena_.restore_buffers_if_skipped(step); }
  void restore_buffers() { arena_.restore_buffers(); }
  void begin_pass() { counted_ = false; }
  /// Throws ArgumentError the second time since begin_pass().
  void count_pass();
  /// After all passes of a step: throws ArgumentError where some were counted, and some were not.
  void check_passes(std::int64_t passes, std::int64_t step) const;
  /// Adds the gradients of a loss, times `weight` and the loss scale: to these networks alone, whatever the
  /// loss has gone through.
  void add_gradients(const Tensor& loss, StepBuffer& step, float weight);
  /// Moves the weights by the step's gradients, which have been measured, and their average; nothing where
  /// the step is skipped.
  void update(StepBuffer& step);

 private:
  std::string name_, loss_name_;
  ParameterArena& arena_;
  Schedule schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<Ema> average_;
  bool are_all_;             ///< of the task: then every gradient is wanted
  bool counted_ = false;     ///< in this pass,
  std::int64_t passes_ = 0;  ///< and in so many of the step
};

}  // namespace athanor
