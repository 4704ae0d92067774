#include "optim/adam.h"

#include <type_traits>

namespace athanor {

template <class Options>
AdamOf<Options>::AdamOf(ParameterArena& arena, const Options& options)
    : AdamOf(arena, {Group{{}, options}}, 0) {}

template <class Options>
AdamOf<Options>::AdamOf(ParameterArena& arena, const std::vector<Group>& groups, int first_slot)
    : Optimizer(std::is_same_v<Options, AdamWOptions> ? "adamw" : "adam", arena,
                {groups.begin(), groups.end()}, first_slot, decay_of(groups)),
      options_(static_cast<std::size_t>(first_slot)) {
  for (const Group& group : groups) {
    const Options& o = group.options;
    ATH_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
              "adam: betas must be in [0, 1), but got {} and {}", o.beta1, o.beta2);
    ATH_CHECK(o.eps >= 0, "adam: eps must be >= 0, but got {}", o.eps);
    ATH_CHECK(o.weight_decay >= 0, "adam: weight_decay must be >= 0, but got {}", o.weight_decay);
    options_.push_back({o.beta1, o.beta2, o.eps, o.weight_decay, std::is_same_v<Options, AdamWOptions>});
  }
  add_state("first_moment");
  add_state("second_moment");
}

template class AdamOf<AdamOptions>;
template class AdamOf<AdamWOptions>;

}  // namespace athanor
