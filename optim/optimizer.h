#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/on_device.h"
#include "optim/arena.h"
#include "optim/plan.h"
#include "optim/schedule.h"
#include "optim/step.h"
#include "tensor/state_dict.h"

namespace athanor {

/// Selects the parameters of a group.
using Selector = std::function<bool(const Parameter&)>;

namespace selectors {
/// All parameters.
Selector all();
/// Parameters with these names.
Selector named(std::vector<std::string> names);
/// Parameters whose name begins with `prefix`.
Selector under(std::string prefix);
/// Weights of convolutions and linear layers: rank 2 or more, and Parameter::decay. Excludes other tensors of
/// that rank, such as class tokens, position embeddings and layer scales.
Selector matrices();
Selector none_of(Selector selector);
}  // namespace selectors

/// The parameters to which weight decay applies.
enum class Decay : std::uint8_t {
  matrices,  ///< parameters with Parameter::decay: all of nn except biases and the
             ///< scales and shifts of norms
  all,       ///< every parameter of the group, as in PyTorch's optimizers
};

/// Parameters with their own options. A parameter belongs to the first group that selects it; an unselected
/// one is not updated.
struct ParamGroup {
  Selector parameters = selectors::all();
  float lr_scale = 1;      ///< factor of the schedule's rate
  Schedule schedule = {};  ///< replaces the one given to set_learning_rates()
};

/// A group with an optimizer's own `Options`.
template <class Options> struct GroupOf : ParamGroup { Options options = {}; };

/// Turns gradients into updates of the masters and their compute copies. Group i uses the learning rate
/// StepState::learning_rate[first_slot + i], times each parameter's own factor (Parameter::lr_scale).
///
/// A parameter without a gradient since zero_grad() is skipped: its weight, state and count of updates do not
/// change. Gradients are never written. A skipped step changes nothing. A step allocates nothing. Results do
/// not depend on the number of threads, unless the optimizer states it.
///
/// An optimizer may have another for parameters it cannot take, its rest: rates, state and averages of both
/// go together.
class Optimizer {
 public:
  /// Whether a sharded arena must keep whole parameters for it (ArenaOptions::whole_parameters): if its
  /// update of an element reads others of the tensor. A derived class may hide it by its own.
  static constexpr bool kWholeParameters = false;

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// "sgd", "adamw", ...
  const char* kind() const { return kind_; }
  virtual void step(StepBuffer& step) = 0;

  /// Writes each group's rate for the next applied step: the value of its own schedule or of the given one,
  /// times its lr_scale and the factor of set_rate_scale().
  void set_learning_rates(StepBuffer& step, const Schedule& schedule) const;
  /// Sets a factor of all learning rates, from the next set_learning_rates() on; initially 1.
  void set_rate_scale(float scale);

  /// For each selected parameter its state tensors, "momentum.conv1.weight", and its count of updates,
  /// "updates.conv1.weight"; also the kind of optimizer. The rest's entries begin with "rest.". Tensors are
  /// views of live memory, not copies, and sharded if the arena is sharded.
  /// A counted wait for the device.
  StateDict state_dict() const;
  /// Loads a state_dict() of an optimizer of the same kind over the same parameters. Throws ArgumentError,
  /// before writing anything, naming a missing, extra or misshapen entry.
  void load_state_dict(const StateDict& state);
  /// Throws what load_state_dict() would throw, but loads nothing.
  void check_state_dict(const StateDict& state) const;

  /// Whether step() can move averages too: whether its kernels write UpdateTable::averages. If not,
  /// Ema::update() makes a pass of its own.
  virtual bool fuses_averages() const { return false; }
  /// From now on, step() also moves these averages. For Ema::fuse_into(), which asks fuses_averages() first.
  /// Throws ArgumentError if the optimizer already has averages.
  void fuse_averages(const std::shared_ptr<FusedAverages>& averages);

  ParameterArena& arena() const { return arena_; }
  /// The slots of its learning rates: [first_slot, first_slot + group_count).
  int first_slot() const { return first_slot_; }
  int group_count() const { return static_cast<int>(groups_.size()); }
  /// Indices of the arena's parameters selected by any group, also of the rest, in declared order.
  std::vector<int> selected() const;

 protected:
  /// Sorts parameters into groups; `decay` has one entry per group. Throws ArgumentError if a group selects
  /// none, and on more groups than StepState has slots. `kind` is a string literal: "sgd".
  Optimizer(const char* kind, ParameterArena& arena, std::vector<ParamGroup> groups, int first_slot,
            std::span<const Decay> decay, std::unique_ptr<Optimizer> rest = nullptr);
  /// The `decay` option of each group.
  template <class Group> static std::vector<Decay> decay_of(const std::vector<Group>& groups) {
    std::vector<Decay> decay;
    for (const Group& group : groups) decay.push_back(group.options.decay);
    return decay;
  }

  /// A zeroed f32 state tensor for the selected parameters; offsets are UpdatePlan::Member::state.
  Tensor add_state(const char* name);
  UpdatePlan& plan() { return plan_; }
  const UpdatePlan& plan() const { return plan_; }
  Optimizer* rest() const { return rest_.get(); }

  /// A step by an elementwise rule (kernels/update_ops.h): one update for each part of the arena. `options`:
  /// by learning-rate slot. The rule's state are the tensors of add_state(), in that order.
  template <class Rule> void step_by(StepBuffer& step, const std::vector<typename Rule::Group>& options);
  /// Any other step() calls this at its end: marks the weights it has written, so that copies become stale.
  void stepped() { arena_.updated(); }

 private:
  StateDict own_state() const;
  std::int64_t updates_of(const StateDict& state, const UpdatePlan::Member& member) const;

  const char* kind_;
  ParameterArena& arena_;
  std::vector<ParamGroup> groups_;
  int first_slot_;
  float rate_scale_ = 1;
  std::int64_t state_size_ = 0;
  UpdatePlan plan_;
  std::vector<const char*> state_names_;
  std::vector<Tensor> states_;
  std::unique_ptr<Optimizer> rest_;
};

template <class Rule>
void Optimizer::step_by(StepBuffer& step, const std::vector<typename Rule::Group>& options) {
  with_step(step, [&](auto& context) {
    for (const kernels::UpdateTable& table : plan_.refresh())
      kernels::update_parameters<Rule>(context, table, options, states_);
  });
  stepped();
}

}  // namespace athanor
