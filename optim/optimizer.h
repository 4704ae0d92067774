#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optim/arena.h"
#include "optim/plan.h"
#include "optim/schedule.h"
#include "optim/step_buffer.h"
#include "tensor/state_dict.h"

namespace athanor {

/// Which parameters a group takes.
using Selector = std::function<bool(const Parameter&)>;

namespace selectors {
Selector all();
/// Those with these names.
Selector named(std::vector<std::string> names);
/// Those whose name begins with `prefix`.
Selector under(std::string prefix);
/// Weights of convolutions and linear layers: rank 2 or more, and Parameter::decay. So not what merely has
/// the shape of one (class tokens, position embeddings, the scales of layers).
Selector matrices();
Selector none_of(Selector selector);
}  // namespace selectors

/// What a weight decay applies to.
enum class Decay : std::uint8_t {
  matrices,  ///< parameters with Parameter::decay: those of nn but for biases and the scales and shifts of
             ///< norms
  all,       ///< every parameter of the group, as in PyTorch's optimizers
};

/// A set of parameters with options of its own. A parameter belongs to the first group that selects it; one
/// that no group selects is left as it is.
struct ParamGroup {
  Selector parameters = selectors::all();
  float lr_scale = 1;      ///< times the schedule's rate
  Schedule schedule = {};  ///< instead of the one given to set_learning_rates()
};

/// A group as an optimizer with `Options` takes it.
template <class Options> struct GroupOf : ParamGroup { Options options = {}; };

/// Turns gradients into updates of the masters and their compute copies. Group i takes its learning rate from
/// StepState::learning_rate[first_slot + i].
///
/// A parameter without a gradient since zero_grad() is skipped: weight, state and its own count of updates
/// stay as they are. Gradients are never written. On a skipped step nothing changes at all. A
/// step allocates nothing. Results do not depend on the number of threads unless the optimizer says so.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// "sgd", "adamw", ...
  const char* kind() const { return kind_; }
  virtual void step(StepBuffer& step) = 0;

  /// Writes each group's rate for the step after the applied steps: its own schedule's, or the given
  /// one's, times its lr_scale, times rate_scale().
  virtual void set_learning_rates(StepBuffer& step, const Schedule& schedule) const;

  /// Per selected parameter its state tensors, "momentum.conv1.weight", and its count of updates,
  /// "updates.conv1.weight"; and the kind of optimizer. Tensors are views of live memory, not copies, and
  /// sharded ones where the arena is sharded.
  /// A counted wait for the device.
  virtual StateDict state_dict() const;
  /// Takes over what state_dict() of an optimizer of the same kind over the same parameters gave. Throws
  /// ArgumentError, before anything is written, on a missing, extra or misshapen entry, naming it.
  virtual void load_state_dict(const StateDict& state);
  /// Throws what load_state_dict() would, and loads nothing.
  virtual void check_state_dict(const StateDict& state) const;

  /// What all learning rates are multiplied by, from the next set_learning_rates() on; 1 at first.
  float rate_scale() const { return rate_scale_; }
  void set_rate_scale(float scale) { rate_scale_ = scale; }

  /// From now on, step() also moves these averages of the masters it updates, one flat f32 tensor per part of
  /// the arena; none ends that. For Ema::fuse_into(), which does the rest. Throws ArgumentError where there
  /// are averages already.
  virtual void fuse_averages(std::span<const Tensor> averages, const kernels::AverageRule& rule);
  /// Marks the arena's parameters that the last step() updated, one entry each.
  virtual void mark_updated(std::span<char> updated) const;
  /// How often step() was called.
  std::int64_t calls() const { return calls_; }
  /// Knows whether this is still alive.
  std::weak_ptr<Optimizer> watch() const { return self_; }

  ParameterArena& arena() const { return arena_; }
  /// The learning rates it reads: [first_slot, first_slot + group_count).
  int first_slot() const { return first_slot_; }
  int group_count() const { return static_cast<int>(groups_.size()); }
  /// Indices of the arena's parameters that some group has selected, in declared order.
  virtual std::vector<int> selected() const;

 protected:
  /// Sorts parameters into groups; `decay` says what that of each applies to. Throws ArgumentError when a
  /// group selects none, and when there are more groups than StepState has room for. `kind` is a string
  /// literal: "sgd".
  Optimizer(const char* kind, ParameterArena& arena, std::vector<ParamGroup> groups, int first_slot,
            std::span<const Decay> decay);
  /// The choice of each group.
  template <class Group> static std::vector<Decay> decay_of(const std::vector<Group>& groups) {
    std::vector<Decay> decay;
    for (const Group& group : groups) decay.push_back(group.options.decay);
    return decay;
  }

  /// A zeroed f32 state tensor with a place for every selected parameter, at UpdatePlan::Member::state.
  Tensor add_state(const char* name);
  UpdatePlan& plan() { return plan_; }
  const UpdatePlan& plan() const { return plan_; }
  /// Called by step(), at its end: what it wrote to is stale for those who kept copies.
  void stepped();

 private:
  struct State {
    const char* name;
    Tensor values;
  };

  std::int64_t updates_of(const StateDict& state, const UpdatePlan::Member& member) const;

  const char* kind_;
  ParameterArena& arena_;
  std::vector<ParamGroup> groups_;
  int first_slot_;
  float rate_scale_ = 1;
  std::int64_t state_size_ = 0;
  UpdatePlan plan_;
  std::vector<State> states_;
  std::int64_t calls_ = 0;
  bool fused_ = false;
  std::shared_ptr<Optimizer> self_{this, [](Optimizer*) {}};  // owns nothing
};

}  // namespace athanor
