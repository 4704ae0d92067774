#include "trainer/run/networks.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "autograd/engine.h"
#include "kernels/hash.h"
#include "nn/batch_norm.h"
#include "optim/load.h"
#include "optim/step.h"
#include "tensor/base/error.h"
#include "tensor/base/nearest.h"
#include "tensor/base/printable.h"
#include "trainer/step_graphs.h"

namespace athanor {
namespace {

/// Every optimizer needs a name, and every network exactly one optimizer.
void check_optimizers(const std::vector<OptimizerSpec>& specs, Task& task) {
  std::vector<std::string> left = task.network_names(), names;
  for (const OptimizerSpec& spec : specs) {
    if (specs.size() == 1 && spec.networks.empty()) return;
    ATH_CHECK(is_name(spec.name), "task: an optimizer's name must be of letters, digits and '_', but is '{}'",
              spec.name);
    ATH_CHECK(std::find(names.begin(), names.end(), spec.name) == names.end(),
              "task: optimizers must have different names, but two are called '{}'", spec.name);
    names.push_back(spec.name);
    ATH_CHECK(!spec.networks.empty(), "task: optimizer '{}' must name the networks that it trains",
              spec.name);
    for (const std::string& network : spec.networks) {
      const auto found = std::find(left.begin(), left.end(), network);
      ATH_CHECK(
          found != left.end(),
          "task: optimizer '{}' must train networks that no other optimizer trains, but '{}' is none of {}",
          spec.name, network, fmt::join(left, ", "));
      left.erase(found);
    }
  }
  ATH_CHECK(left.empty(), "task: every network must have an optimizer, but '{}' has none", left[0]);
}

// --freeze PREFIX[:EPOCHS]. Parts frozen for the whole run are frozen before the run allocates memory:
// FrozenWeights. Parts released later are in the arena from the start, with gradients and optimizer state;
// while frozen they get no gradient, so no update and no decay (Optimizer). In both cases batch norms keep
// their statistics. All this depends only on the epoch, so a resumed run does the same.

nn::Module& module_of(nn::Module& networks, const std::string& prefix) {
  const std::vector<nn::NamedModule> named = networks.modules();
  std::vector<nn::Module*> all;  // in the same order
  networks.for_each_module(
      [&](nn::Module& module, const std::vector<Parameter>&) { all.push_back(&module); });
  std::vector<std::string> names, first_level;
  for (std::size_t i = 1; i < named.size(); ++i) {  // the first is the whole network
    if (named[i].name == prefix) return *all[i];
    names.push_back(named[i].name);
    if (named[i].name.find('.') == std::string::npos) first_level.push_back(named[i].name);
  }
  detail::fail<>("--freeze: must be the name of a module, {}, or of one below it, but got '{}'{}",
                 fmt::join(first_level, ", "), prefix, did_you_mean(prefix, names));
}

// Freezes what stays frozen, and unfreezes what an earlier run left frozen and this one will release.
void freeze_for_run(nn::Module& networks, std::span<const Freeze> freezes) {
  for (const Freeze& one : freezes) {
    nn::Module& module = module_of(networks, one.prefix);
    if (one.epochs != Freeze::kAlways && module.frozen()) module.unfreeze();
  }
  for (const Freeze& one : freezes) {
    if (one.epochs == Freeze::kAlways) module_of(networks, one.prefix).freeze();
  }
}

// --freeze-bn.
void freeze_norms(nn::Module& networks, FreezeNorms what) {
  bool any = false;
  networks.for_each_module([&](nn::Module& module, const std::vector<Parameter>&) {
    auto* const norm = dynamic_cast<nn::BatchNorm*>(&module);
    if (!norm) return;
    any = true;
    norm->keep_statistics(what == FreezeNorms::statistics);  // an earlier run may have asked for it
    if (what == FreezeNorms::all) norm->freeze();
  });
  ATH_CHECK(any || what == FreezeNorms::none, "--freeze-bn: the network must have batch norms, but has none");
}

/// An earlier run in a half precision has left weights in it: widens them to continue.
void widen(nn::Module& networks) {
  const std::vector<Parameter> all = networks.parameters();
  if (std::any_of(all.begin(), all.end(), [](const Parameter& one) { return is_half(one.tensor.dtype()); }))
    networks.to(DType::f32);
}

/// Frozen weights are never sent: all ranks must start with the same ones.
void check_frozen(const FrozenWeights& frozen, ParallelStrategy& strategy) {
  StateDict weights;
  if (!frozen.empty()) weights.set("the frozen weights' hash", fmt::format("{:016x}", frozen.hash()));
  strategy.check_same(weights);
}

}  // namespace

OptimizedNetworks::OptimizedNetworks(const OptimizerSpec& spec, ParameterArena& of, int first_slot,
                                     const TrainerConfig& config)
    : name(spec.name),
      loss_name(spec.name + "_loss"),
      arena(of),
      optimizer(spec.make ? spec.make(of, first_slot) : make_optimizer(config, of, first_slot)),
      schedule(spec.schedule),
      are_all_(spec.networks.empty()) {
  const std::vector<int> selected = optimizer->selected();
  for (int i = 0; i < arena.size(); ++i) {
    if (std::find(selected.begin(), selected.end(), i) == selected.end()) unselected_.push_back(i);
  }
  if (config.ema_decay > 0)
    average.emplace(arena, EmaOptions{.decay = config.ema_decay, .every = static_cast<int>(config.ema_every)})
        .fuse_into(*optimizer);
}

void OptimizedNetworks::begin_step() {
  arena.buffers().snapshot();
  arena.zero_grad();
  passes_ = 0;
  last_ = -1;
}

void OptimizedNetworks::count_pass(std::int64_t pass) {
  ATH_CHECK(!std::exchange(counted_, true),
            "minimize: '{}' must be minimized once per step, but is minimized again", name);
  if (std::exchange(last_, pass) != pass) ++passes_;
}

// Otherwise the gradients of the other passes would be lost with the step, or weigh too little.
void OptimizedNetworks::check_passes(std::int64_t passes, std::int64_t step) const {
  ATH_CHECK(passes_ == 0 || passes_ == passes,
            "minimize: '{}' must be minimized in all passes of a step (--accumulate) or in none, but was in "
            "{} of {} passes of step {}",
            name, passes_, passes, step);
}

void OptimizedNetworks::update(StepBuffer& step) {
  for (const int i : unselected_) {
    ATH_CHECK(
        !arena.has_gradient(i),
        "optimizer: every trained parameter must be in a group, but '{}' has a gradient and is in none of "
        "those of '{}'; add a group that selects it, or freeze() its module",
        arena.parameters()[static_cast<std::size_t>(i)].name, optimizer->kind());
  }
  const std::int64_t before = arena.updates();
  optimizer->step(step);
  ATH_CHECK(
      arena.updates() != before,
      "optimizer: step() must call stepped() at its end, or copies of the weights become stale, but that "
      "of '{}' does not",
      optimizer->kind());
}

void OptimizedNetworks::add_gradients(const Tensor& loss, StepBuffer& step, float weight) {
  backward_scaled(loss, step, weight, are_all_ ? std::span<const Parameter>() : arena.parameters());
}

void RunNetworks::make_schedules(std::int64_t total_steps, const DataPipeline& pipeline) {
  specs_ = task_.optimizers();
  if (specs_.empty()) specs_.emplace_back();
  check_optimizers(specs_, task_);
  ATH_CHECK(specs_.size() == 1 || config_.skip_outliers == 0,
            "--skip-outliers: works with a single optimizer only, but the task has {}", specs_.size());
  const auto every = [&](auto member) {
    return std::all_of(specs_.begin(), specs_.end(),
                       [&](const auto& spec) { return static_cast<bool>(spec.*member); });
  };
  const std::int64_t asked = config_.accumulate * config_.batch_size, has = pipeline.samples_of_step(0);
  ATH_CHECK(config_.lr_scaling == LrScaling::none || has == asked,
            "--scale-lr: a step must have {} samples (--batch-size times --accumulate), but an epoch has "
            "only {}; use smaller values",
            asked, has);
  check_recipe_is_used(config_, every(&OptimizerSpec::make), every(&OptimizerSpec::schedule));
  for (OptimizerSpec& spec : specs_) {
    if (!spec.schedule) spec.schedule = make_schedule(config_, total_steps, pipeline.steps_per_epoch());
  }
}

void RunNetworks::make(ModelMemory& memory, PhaseTimes& times) {
  if (memory.frozen) memory.frozen->put_back();
  widen(task_.networks());
  freeze_for_run(task_.networks(), config_.freeze);
  freeze_norms(task_.networks(), config_.freeze_norms);
  auto frozen = std::make_unique<FrozenWeights>(task_.frozen_parameters(), task_.frozen_buffers(),
                                                config_.precision, config_.device);
  check_frozen(*frozen, strategy_);
  std::vector<std::unique_ptr<ParameterArena>> arenas;
  for (const OptimizerSpec& spec : specs_) {
    std::vector<Parameter> parameters = task_.parameters_of(spec.networks);
    ATH_CHECK(!parameters.empty() || frozen->empty(),
              "task: {} must have something to train, but everything is frozen",
              spec.name.empty() ? "its optimizer" : fmt::format("optimizer '{}'", spec.name));
    const bool whole = spec.make ? spec.whole_parameters
                                 : !config_.optimizer && entry_of(config_.optimizer_kind).whole_parameters;
    arenas.push_back(std::make_unique<ParameterArena>(
        std::move(parameters), task_.buffers_of(spec.networks),
        strategy_.arena_options({.precision = config_.precision,
                                 .device = config_.device,
                                 .f32_gradients = config_.f32_gradients || config_.accumulate > 1,
                                 .whole_parameters = whole})));
    strategy_.attach(*arenas.back(), times);
  }
  // Destroys the arenas of an earlier run now: a model moves from one arena to the next.
  memory.arenas = std::move(arenas);
  memory.frozen = std::move(frozen);
  frozen_ = memory.frozen.get();
  int slot = 0;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    all_.push_back(std::make_unique<OptimizedNetworks>(specs_[i], *memory.arenas[i], slot, config_));
    slot += all_.back()->optimizer->group_count();
  }
  const std::string why = why_not_captured(config_, strategy_.world_size(), task_, all_);
  ATH_CHECK(config_.graph != GraphMode::on || why.empty(),
            "--graph on: the steps of this run cannot be captured: {}; use --graph auto", why);
}

void RunNetworks::freeze(std::int64_t epoch) {
  nn::Module& networks = task_.networks();
  if (config_.freeze.empty()) return;
  for (const Freeze& one : config_.freeze) {
    nn::Module& module = module_of(networks, one.prefix);
    if (epoch >= one.epochs && module.frozen()) module.unfreeze();
  }
  for (const Freeze& one : config_.freeze) {  // frozen parts inside a released part
    if (epoch < one.epochs) module_of(networks, one.prefix).freeze();
  }
  freeze_norms(networks, config_.freeze_norms);  // those inside a released part
  const std::vector<Parameter> parameters = networks.parameters();
  ATH_CHECK(std::any_of(parameters.begin(), parameters.end(),
                        [](const Parameter& one) { return one.tensor.requires_grad(); }),
            "--freeze: must leave something to train, but everything is frozen in epoch {}", epoch + 1);
}

void RunNetworks::hold_rates_after(std::int64_t steps, std::int64_t steps_per_epoch) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (task_.optimizers().size() > i && task_.optimizers()[i].schedule) continue;  // the task's own
    specs_[i].schedule = make_schedule(config_, steps, steps_per_epoch);
    if (depends_on_length(config_)) specs_[i].schedule = held_after(specs_[i].schedule, steps);
    all_[i]->schedule = specs_[i].schedule;
  }
}

OptimizedNetworks& RunNetworks::called(std::string_view optimizer) const {
  ATH_CHECK(all_.size() > 1, "minimize: this task has one optimizer: its training_step must return the loss");
  std::string names;
  for (const auto& one : all_) {
    if (one->name == optimizer) return *one;
    names += (names.empty() ? "'" : ", '") + one->name + "'";
  }
  detail::fail<>("minimize: must name one of the optimizers {}, but got '{}'", names, optimizer);
}

std::vector<const ParameterArena*> RunNetworks::arenas() const {
  std::vector<const ParameterArena*> arenas;
  for (const auto& one : all_) arenas.push_back(&one->arena);
  return arenas;
}

std::vector<Schedule> RunNetworks::schedules() const {
  std::vector<Schedule> schedules;
  for (const OptimizerSpec& spec : specs_) schedules.push_back(spec.schedule);
  return schedules;
}

std::string RunNetworks::kinds() const {
  if (all_.size() == 1) return all_[0]->optimizer->kind();
  std::string kinds;
  for (const auto& one : all_)
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", one->name, one->optimizer->kind());
  return kinds;
}

std::uint64_t RunNetworks::weights_hash() const {
  const std::uint64_t trained = strategy_.weights_hash();
  return frozen_->empty() ? trained : kernels::mix64(trained) ^ frozen_->hash();
}

// Names of different networks differ, so one dictionary holds them all, including frozen ones.
template <class Of>
StatePart RunNetworks::part_of_all(const char* prefix, const Of& of, FrozenWeights* frozen) const {
  const auto save = [this, of, frozen] {
    StateDict state;
    for (const auto& one : all_) state.set_all("", of(*one).state_dict());
    if (frozen) state.set_all("", frozen->state_dict());
    return state;
  };
  const auto load = [this, of, frozen](const StateDict& state) {
    if (all_.size() == 1 && !frozen) return of(*all_[0]).load_state_dict(state);
    std::vector<StateDict> given;
    for (const auto& one : all_) given.push_back(state.picked(of(*one).state_dict().names()));
    const StateDict still = frozen ? state.picked(frozen->state_dict().names()) : StateDict();
    state.require_all_used("networks");
    for (std::size_t i = 0; i < given.size(); ++i)
      check_tensors(of(*all_[i]).state_dict(), given[i], "networks");
    if (frozen) frozen->load_state_dict(still);
    for (std::size_t i = 0; i < given.size(); ++i) of(*all_[i]).load_state_dict(given[i]);
  };
  return {prefix, save, load};
}

StatePart RunNetworks::weights_part() const {
  const auto arena = [](OptimizedNetworks& of) -> ParameterArena& { return of.arena; };
  return part_of_all("model.", arena, frozen_->empty() ? nullptr : frozen_);
}

std::vector<StatePart> RunNetworks::state_parts() const {
  std::vector<StatePart> parts;
  for (const auto& one : all_) {
    Optimizer& optimizer = *one->optimizer;
    parts.push_back({all_.size() == 1 ? "optimizer." : fmt::format("optimizer.{}.", one->name),
                     [&optimizer] { return optimizer.state_dict(); },
                     [&optimizer](const StateDict& state) { optimizer.load_state_dict(state); }});
  }
  const auto average = [](OptimizedNetworks& of) -> Ema& { return *of.average; };
  if (config_.ema_decay > 0) parts.push_back(part_of_all("ema.", average, nullptr));
  parts.push_back(weights_part());
  return parts;
}

}  // namespace athanor
