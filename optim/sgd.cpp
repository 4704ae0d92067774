#include "optim/sgd.h"

#include "kernels/on_device.h"
#include "optim/step.h"

namespace athanor {

Sgd::Sgd(ParameterArena& arena, const SgdOptions& options) : Sgd(arena, {Group{{}, options}}, 0) {}

Sgd::Sgd(ParameterArena& arena, const std::vector<Group>& groups, int first_slot)
    : Optimizer("sgd", arena, {groups.begin(), groups.end()}, first_slot, decay_of(groups)),
      options_(static_cast<std::size_t>(first_slot)) {
  bool any_momentum = false;
  for (const Group& group : groups) {
    const SgdOptions& o = group.options;
    ATH_CHECK(o.momentum >= 0 && o.momentum < 1, "sgd: momentum must be in [0, 1), but got {}", o.momentum);
    ATH_CHECK(o.weight_decay >= 0, "sgd: weight_decay must be >= 0, but got {}", o.weight_decay);
    ATH_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
              "sgd: nesterov needs momentum > 0 and dampening 0, but got {} and {}", o.momentum, o.dampening);
    options_.push_back({o.momentum, o.momentum > 0 ? o.dampening : 0, o.weight_decay, o.nesterov});
    any_momentum = any_momentum || o.momentum > 0;
  }
  if (any_momentum) momentum_ = add_state("momentum");
}

void Sgd::step(StepBuffer& step) {
  on_device(arena().device(), [&](auto& context) {
    const BoundStep bound(context, step);
    for (const kernels::UpdateTable& table : plan().refresh()) {
      kernels::sgd_update(context, table, options_, momentum_);
    }
  });
  stepped();
}

}  // namespace athanor
