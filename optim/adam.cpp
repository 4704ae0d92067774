#include "optim/adam.h"

#include <utility>

#include "kernels/on_device.h"
#include "optim/step.h"

namespace athanor {
namespace {

template <class Group>
std::vector<kernels::AdamGroup> checked_options(const std::vector<Group>& groups, int first_slot,
                                                bool decoupled) {
  std::vector<kernels::AdamGroup> options(static_cast<std::size_t>(first_slot));
  for (const Group& group : groups) {
    const auto& o = group.options;
    ATH_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
              "adam: betas must be in [0, 1), but got {} and {}", o.beta1, o.beta2);
    ATH_CHECK(o.eps >= 0, "adam: eps must be >= 0, but got {}", o.eps);
    ATH_CHECK(o.weight_decay >= 0, "adam: weight_decay must be >= 0, but got {}", o.weight_decay);
    options.push_back({o.beta1, o.beta2, o.eps, o.weight_decay, decoupled});
  }
  return options;
}

}  // namespace

Adam::Adam(const char* kind, ParameterArena& arena, std::vector<ParamGroup> groups, int first_slot,
           std::span<const Decay> decay, std::vector<kernels::AdamGroup> options)
    : Optimizer(kind, arena, std::move(groups), first_slot, decay),
      options_(std::move(options)),
      first_moment_(add_state("first_moment")),
      second_moment_(add_state("second_moment")) {}

Adam::Adam(ParameterArena& arena, const std::vector<Group>& groups, int first_slot)
    : Adam("adam", arena, {groups.begin(), groups.end()}, first_slot, decay_of(groups),
           checked_options(groups, first_slot, false)) {}

Adam::Adam(ParameterArena& arena, const AdamOptions& options) : Adam(arena, {Group{{}, options}}, 0) {}

AdamW::AdamW(ParameterArena& arena, const std::vector<Group>& groups, int first_slot)
    : Adam("adamw", arena, {groups.begin(), groups.end()}, first_slot, decay_of(groups),
           checked_options(groups, first_slot, true)) {}

AdamW::AdamW(ParameterArena& arena, const AdamWOptions& options) : AdamW(arena, {Group{{}, options}}, 0) {}

void Adam::step(StepBuffer& step) {
  on_device(arena().device(), [&](auto& context) {
    const BoundStep bound(context, step);
    for (const kernels::UpdateTable& table : plan().refresh()) {
      kernels::adam_update(context, table, options_, first_moment_, second_moment_);
    }
  });
  stepped();
}

}  // namespace athanor
