#include "optim/sgd.h"

namespace athanor {

Sgd::Sgd(ParameterArena& arena, const SgdOptions& options) : Sgd(arena, {Group{{}, options}}, 0) {}

Sgd::Sgd(ParameterArena& arena, const std::vector<Group>& groups, int first_slot)
    : Optimizer("sgd", arena, {groups.begin(), groups.end()}, first_slot, decay_of(groups)),
      options_(static_cast<std::size_t>(first_slot)) {
  for (const Group& group : groups) {
    const SgdOptions& o = group.options;
    ATH_CHECK(o.momentum >= 0 && o.momentum < 1, "sgd: momentum must be in [0, 1), but got {}", o.momentum);
    ATH_CHECK(o.weight_decay >= 0, "sgd: weight_decay must be >= 0, but got {}", o.weight_decay);
    ATH_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
              "sgd: nesterov needs momentum > 0 and dampening 0, but got {} and {}", o.momentum, o.dampening);
    options_.push_back({o.momentum, o.momentum > 0 ? o.dampening : 0, o.weight_decay, o.nesterov});
    any_momentum_ = any_momentum_ || o.momentum > 0;
  }
  if (any_momentum_) add_state("momentum");
}

void Sgd::step(StepBuffer& step) {
  if (any_momentum_) return step_by<kernels::MomentumRule>(step, options_);
  step_by<kernels::SgdRule>(step, options_);
}

}  // namespace athanor
