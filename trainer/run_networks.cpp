// The networks of a run: their optimizers, and what steps may do with them.

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/ranges.h>

#include "autograd/engine.h"
#include "tensor/error.h"
#include "trainer/freezing.h"
#include "trainer/run.h"

namespace athanor {
namespace {

/// Every optimizer needs a name, and every network exactly one optimizer.
void check_optimizers(const std::vector<OptimizerSpec>& specs, Task& task) {
  std::vector<std::string> left = task.network_names(), names;
  for (const OptimizerSpec& spec : specs) {
    if (specs.size() == 1 && spec.networks.empty()) return;
    const bool plain =
        !spec.name.empty() && std::all_of(spec.name.begin(), spec.name.end(),
                                          [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    ATH_CHECK(plain, "task: an optimizer's name must be of letters, digits and '_', but is '{}'", spec.name);
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

// The optimizers, each with its networks and learning rate.
std::vector<OptimizerSpec> Run::specs() {
  std::vector<OptimizerSpec> all = task_.optimizers();
  if (all.empty()) all.emplace_back();
  check_optimizers(all, task_);
  ATH_CHECK(all.size() == 1 || config_.skip_outliers == 0,
            "--skip-outliers: works with a single optimizer only, but the task has {}", all.size());
  const auto every = [&](auto member) {
    return std::all_of(all.begin(), all.end(),
                       [&](const auto& spec) { return static_cast<bool>(spec.*member); });
  };
  const std::int64_t asked = config_.accumulate * config_.batch_size, has = pipeline_.samples_of_step(0);
  ATH_CHECK(config_.lr_scaling == LrScaling::none || has == asked,
            "--scale-lr: a step must have {} samples (--batch-size times --accumulate), but an epoch has "
            "only {}; use smaller values",
            asked, has);
  check_recipe_is_used(config_, every(&OptimizerSpec::make), every(&OptimizerSpec::schedule));
  for (OptimizerSpec& spec : all) {
    if (!spec.schedule) spec.schedule = make_schedule(config_, total_steps(), pipeline_.steps_per_epoch());
  }
  return all;
}

std::vector<std::unique_ptr<OptimizedNetworks>> Run::make_networks(ModelMemory& memory) {
  strategy_.check_same(shared_settings());  // ranks that differ cannot communicate
  if (memory.frozen) memory.frozen->put_back();
  widen(task_.networks());
  freeze_for_run(task_.networks(), config_.freeze);
  auto frozen = std::make_unique<FrozenWeights>(task_.frozen_parameters(), task_.frozen_buffers(),
                                                config_.precision, config_.device);
  check_frozen(*frozen, strategy_);
  std::vector<std::unique_ptr<ParameterArena>> made;
  for (const OptimizerSpec& spec : specs_) {
    std::vector<Parameter> parameters = task_.parameters_of(spec.networks);
    ATH_CHECK(!parameters.empty() || frozen->empty(),
              "task: {} must have something to train, but everything is frozen",
              spec.name.empty() ? "its optimizer" : fmt::format("optimizer '{}'", spec.name));
    const bool whole = spec.make ? spec.whole_parameters
                                 : !config_.optimizer && needs_whole_parameters(config_.optimizer_kind);
    made.push_back(std::make_unique<ParameterArena>(
        std::move(parameters), task_.buffers_of(spec.networks),
        strategy_.arena_options({.precision = config_.precision,
                                 .device = config_.device,
                                 .f32_gradients = config_.f32_gradients || config_.accumulate > 1,
                                 .whole_parameters = whole})));
    strategy_.attach(*made.back(), times_);
  }
  // Destroys the arenas of an earlier run now: a model moves from one arena to the next.
  memory.arenas = std::move(made);
  memory.frozen = std::move(frozen);
  std::vector<std::unique_ptr<OptimizedNetworks>> networks;
  int slot = 0;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    networks.push_back(
        std::make_unique<OptimizedNetworks>(specs_[i], *memory.arenas[i], slot, specs_[i].schedule, config_));
    slot += networks.back()->optimizer().group_count();
  }
  const std::string why = why_not_captured(config_, strategy_.world_size(), task_, networks);
  ATH_CHECK(config_.graph != GraphMode::on || why.empty(),
            "--graph on: the steps of this run cannot be captured: {}; use --graph auto", why);
  return networks;
}

OptimizedNetworks& Run::networks_called(std::string_view optimizer) {
  ATH_CHECK(!returns_loss(), "minimize: this task has one optimizer: its training_step must return the loss");
  for (const auto& networks : networks_) {
    if (networks->name() == optimizer) return *networks;
  }
  std::string names;
  for (const auto& networks : networks_) names += (names.empty() ? "'" : ", '") + networks->name() + "'";
  detail::fail<>("minimize: must name one of the optimizers {}, but got '{}'", names, optimizer);
}

void Run::check_loss(std::string_view whose, const Tensor& loss) {
  ATH_CHECK(loss.defined() && loss.numel() == 1 && loss.dtype() == DType::f32 && loss.requires_grad(),
            "{}: needs the mean loss of its batch, one f32 that depends on parameters, but got {}", whose,
            !loss.defined()        ? "none"
            : loss.requires_grad() ? fmt::format("{} {}", loss.dtype(), loss.shape())
                                   : "one that depends on none");
}

// Whatever a loss depends on, an optimizer of the run must hold, except tensors that the step itself has made
// leaves, such as an input whose gradient it asks for.
void Run::check_leaves(const Tensor& loss) const {
  const auto is_held = [this](const Leaf& leaf) {
    return std::any_of(arenas_.begin(), arenas_.end(), [&](const ParameterArena* arena) {
      return std::any_of(arena->parts().begin(), arena->parts().end(), [&](const auto& part) {
        return part.gradients.storage() == leaf.slice().storage();
      });
    });
  };
  for_each_leaf(loss, [&](const Leaf& leaf) {
    ATH_CHECK(leaf.sequence() >= now_.first_node || (leaf.bound() && is_held(leaf)),
              "{}: its loss must depend on trained parameters alone, but no optimizer of the run has {}; "
              "declare its network in the task, network(NAME, MODULE), register its module in the parent, "
              "register_module(NAME, MODULE), or freeze() it if it is not to be trained",
              returns_loss() ? "training_step" : "minimize",
              leaf.owner.empty() ? "a tensor that require_grad() was called on, and no module registers"
                                 : leaf.owner);
  });
}

void Run::check_result(const Tensor& returned) const {
  if (returns_loss()) return check_loss("training_step", returned);
  ATH_CHECK(!returned.defined(),
            "training_step: with {} optimizers, must minimize() each of its losses, and return none",
            networks_.size());
  ATH_CHECK(
      now_.made > 0 || !now_.updates,
      "training_step: with {} optimizers, must minimize() the loss of at least one, but did so for none",
      networks_.size());
}

void Run::hold_rates_after(std::int64_t steps) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (task_.optimizers().size() > i && task_.optimizers()[i].schedule) continue;  // the task's own
    specs_[i].schedule = make_schedule(config_, steps, pipeline_.steps_per_epoch());
    if (depends_on_length(config_)) specs_[i].schedule = held_after(specs_[i].schedule, steps);
    networks_[i]->set_schedule(specs_[i].schedule);
  }
}

std::vector<Schedule> Run::schedules() const {
  std::vector<Schedule> all;
  for (const OptimizerSpec& spec : specs_) all.push_back(spec.schedule);
  return all;
}

std::string Run::optimizer_kinds() const {
  if (returns_loss()) return networks_[0]->optimizer().kind();
  std::string all;
  for (const auto& networks : networks_)
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", networks->name(), networks->optimizer().kind());
  return all;
}

std::vector<Ema*> Run::averages() {
  std::vector<Ema*> all;
  if (!position_.averages_hold) return all;
  for (const auto& networks : networks_) {
    if (Ema* const average = networks->average()) all.push_back(average);
  }
  return all;
}

// Steps ----------------------------------------------------------------------------------------------------

// Trial steps, and those that look for an error, are not captured: they run once. Nor is the first step,
// which detects whether the run fits in memory: a graph's memory is never given back.
void Run::begin_passes(std::int64_t samples, bool updates) {
  now_ = {.samples = samples, .joins = updates && (joined_ || !returns_loss())};
  now_.pass = place_of_pass(0, updates);
  StepGraphs::Key key{.samples = samples};
  if (updates && !trying_ && position_.attempted > 0) key.number = task_.captured_as(now_.pass);
  graphs_.begin(key, metrics_.totals().raw_data());
}

BatchPosition Run::place_of_pass(std::int64_t done, bool updates) const {
  BatchPosition place =
      pipeline_.place(position_.epoch, position_.attempted - (updates ? 0 : 1),
                      std::min(config_.batch_size, now_.samples - done), true, done / config_.batch_size);
  place.may_be_captured = graphs_.may_capture();
  return place;
}

// Each pass is weighted by its share of the step's samples, so a shorter last step is still an exact mean.
void Run::add_gradients(OptimizedNetworks& networks, const Tensor& loss) {
  // What is trained changes at the beginning of an epoch, if at all.
  if (position_.epoch_steps == 0 || networks.arena().updates() == 0) check_leaves(loss);
  const auto timed = times_.scope(&Times::backward);
  const auto silent = strategy_.begin_pass(networks.arena(), now_.updates);
  networks.add_gradients(
      loss, step_,
      static_cast<float>(static_cast<double>(now_.pass.samples) / static_cast<double>(now_.samples)));
}

// For one of several optimizers, within a step of the task.
void Run::minimize(std::string_view optimizer, const Tensor& loss) {
  OptimizedNetworks& networks = networks_called(optimizer);
  check_loss("minimize", loss);
  networks.count_pass(now_.pass.pass);
  metrics_.log(networks.loss_name(), loss, now_.pass.samples, MetricReduce::mean);
  if (now_.dropped) return;
  add_gradients(networks, loss);
  if (!now_.updates) return;
  update(networks);
  strategy_.publish_weights();  // the rest of the step reads them
}

}  // namespace athanor
