#include "optim/optimizer.h"

#include <algorithm>
#include <utility>

#include "optim/flat.h"
#include "optim/load.h"

namespace athanor {
namespace {

constexpr auto kStateAlign = static_cast<std::int64_t>(kSliceAlignment / sizeof(float));

std::vector<UpdatePlan::Member> sort_into_groups(const ParameterArena& arena,
                                                 std::span<const ParamGroup> groups, int first_slot,
                                                 std::span<const Decay> decay) {
  ATH_CHECK(!groups.empty(), "optimizer: there must be at least one group of parameters");
  ATH_CHECK(first_slot >= 0 && first_slot + static_cast<int>(groups.size()) <= kMaxParamGroups,
            "optimizer: groups must fit into {} learning rates, but got {} from index {} on", kMaxParamGroups,
            groups.size(), first_slot);
  std::vector<UpdatePlan::Member> members;
  std::vector<int> taken(groups.size());
  std::int64_t at = 0;
  for (int i = 0; i < arena.size(); ++i) {
    const Parameter& parameter = arena.parameters()[static_cast<std::size_t>(i)];
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const ParamGroup& candidate) {
      return candidate.parameters(parameter);
    });
    if (group == groups.end()) continue;
    const auto index = static_cast<std::size_t>(group - groups.begin());
    ++taken[index];
    members.push_back({i, first_slot + static_cast<int>(index), at,
                       parameter.decay || decay[index] == Decay::all, parameter.lr_scale});
    at += align_elements(arena.shards().elements(i), kStateAlign);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ATH_CHECK(taken[i] > 0,
              "optimizer: every group must select a parameter that no earlier group has, but group {} "
              "selects none of {}",
              i, arena.size());
  }
  return members;
}

}  // namespace

// Selectors ------------------------------------------------------------------------------------------------

namespace selectors {

Selector all() {
  return [](const Parameter&) { return true; };
}
Selector named(std::vector<std::string> names) {
  return [names = std::move(names)](const Parameter& parameter) {
    return std::find(names.begin(), names.end(), parameter.name) != names.end();
  };
}
Selector under(std::string prefix) {
  return
      [prefix = std::move(prefix)](const Parameter& parameter) { return parameter.name.starts_with(prefix); };
}
Selector matrices() {
  return [](const Parameter& parameter) { return parameter.tensor.rank() >= 2 && parameter.decay; };
}
Selector none_of(Selector selector) {
  return [selector = std::move(selector)](const Parameter& parameter) { return !selector(parameter); };
}

}  // namespace selectors

// Optimizer ------------------------------------------------------------------------------------------------

Optimizer::Optimizer(const char* kind, ParameterArena& arena, std::vector<ParamGroup> groups, int first_slot,
                     std::span<const Decay> decay, std::unique_ptr<Optimizer> rest)
    : kind_(kind),
      arena_(arena),
      groups_(std::move(groups)),
      first_slot_(first_slot),
      plan_(arena, sort_into_groups(arena, groups_, first_slot, decay)),
      rest_(std::move(rest)) {
  for (const UpdatePlan::Member& member : plan_.members()) {
    state_size_ = align_elements(member.state + arena.shards().elements(member.parameter), kStateAlign);
  }
}

Tensor Optimizer::add_state(const char* name) {
  const AllocTag tagged("optimizer");
  state_names_.push_back(name);
  states_.push_back(make_flat(state_size_, DType::f32, arena_.device()));
  return states_.back();
}

std::vector<int> Optimizer::selected() const {
  std::vector<int> indices = rest_ ? rest_->selected() : std::vector<int>();
  for (const UpdatePlan::Member& member : plan_.members()) indices.push_back(member.parameter);
  std::sort(indices.begin(), indices.end());
  return indices;
}

// Learning rates -------------------------------------------------------------------------------------------

void Optimizer::set_rate_scale(float scale) {
  rate_scale_ = scale;
  if (rest_) rest_->set_rate_scale(scale);
}

void Optimizer::set_learning_rates(StepBuffer& step, const Schedule& schedule) const {
  // Only the device knows the next step; the host knows the possible ones.
  const std::int64_t first = step.known().applied_steps;
  kernels::RateWindow window;
  window.first_step = first;
  window.steps = step.unknown_steps() + 1;
  window.first_group = first_slot_;
  window.groups = group_count();
  for (int i = 0; i < window.groups; ++i) {
    const ParamGroup& group = groups_[static_cast<std::size_t>(i)];
    const Schedule& own = group.schedule ? group.schedule : schedule;
    ATH_CHECK(own, "set_learning_rates: group {} must have its own schedule if none is passed", i);
    for (int k = 0; k < window.steps; ++k) window.rate[k][i] = own(first + k) * group.lr_scale * rate_scale_;
  }
  with_step(step, [&](auto& context) { kernels::set_learning_rates(context, window); });
  if (rest_) rest_->set_learning_rates(step, schedule);
}

// State ----------------------------------------------------------------------------------------------------

StateDict Optimizer::own_state() const {
  StateDict state;
  state.set("kind", std::string(kind_));
  const std::vector<double> updates = plan_.steps().to_vector();
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const UpdatePlan::Member& member = plan_.members()[i];
    const Parameter& parameter = arena_.parameters()[static_cast<std::size_t>(member.parameter)];
    for (std::size_t k = 0; k < states_.size(); ++k) {
      std::int64_t next = member.state;
      const auto place = [&](const Shards::Run& run) { return std::exchange(next, next + run.count); };
      state.set(fmt::format("{}.{}", state_names_[k], parameter.name),
                arena_.shards().state_of(member.parameter, states_[k], place));
    }
    state.set(fmt::format("updates.{}", parameter.name), static_cast<std::int64_t>(updates[i]));
  }
  return state;
}

StateDict Optimizer::state_dict() const {
  StateDict state = own_state();
  if (rest_) state.set_all("rest.", rest_->state_dict());
  return state;
}

void Optimizer::check_state_dict(const StateDict& state) const {
  if (rest_) rest_->check_state_dict(state.under("rest."));
  ATH_CHECK(state.text("kind") == kind_, "optimizer: the state must be of {}, but is of {}", kind_,
            state.text("kind"));
  for (const UpdatePlan::Member& member : plan_.members()) (void)updates_of(state, member);
  check_tensors(own_state(), state, kind_);
}

void Optimizer::load_state_dict(const StateDict& state) {
  check_state_dict(state);
  if (rest_) rest_->load_state_dict(state.under("rest."));
  std::vector<std::int64_t> updates;
  for (const UpdatePlan::Member& member : plan_.members()) updates.push_back(updates_of(state, member));
  copy_tensors(own_state(), state);
  plan_.steps().copy_bytes_from(
      Tensor::from(updates, {static_cast<std::int64_t>(updates.size())}, arena_.device()));
}

std::int64_t Optimizer::updates_of(const StateDict& state, const UpdatePlan::Member& member) const {
  const Parameter& parameter = arena_.parameters()[static_cast<std::size_t>(member.parameter)];
  return state.integer(fmt::format("updates.{}", parameter.name));
}

void Optimizer::fuse_averages(const std::shared_ptr<FusedAverages>& averages) {
  ATH_CHECK(!plan_.fused(), "{}: averages must be fused into an optimizer only once, but it has some already",
            kind_);
  plan_.fuse(averages);
  if (rest_) rest_->fuse_averages(averages);
}

}  // namespace athanor
