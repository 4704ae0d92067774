#include "trainer/flags/recipe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "optim/adam.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "tensor/base/error.h"
#include "trainer/config.h"

namespace athanor {
namespace {

constexpr double kOneCycleRise = 0.25, kOneCycleDivisor = 25, kOneCycleFinalDivisor = 1000;
// Rate of AdamW for the rest, relative to Muon's: 0.0003 for 0.02.
constexpr float kRestOfMuon = 0.015f;

/// Groups of one kind of optimizer: parameters with decay, and those without, if any.
template <class O, class Options>
std::vector<typename O::Group> groups_of(const TrainerConfig& config, ParameterArena& arena,
                                         Options options) {
  // Decay pulls filters and matrices to zero; by default it skips biases, scales and shifts, which are few.
  const bool all = config.decay == Decay::all;
  const auto decays = [=](const Parameter& p) { return all || (p.decay && p.tensor.rank() >= 2); };
  std::vector<typename O::Group> groups;
  for (const bool decay : {true, false}) {
    const auto wanted = [=](const Parameter& p) { return decays(p) == decay; };
    const auto parameters = arena.parameters();
    if (std::none_of(parameters.begin(), parameters.end(), wanted)) continue;
    typename O::Group group;
    group.parameters = wanted;
    group.options = options;
    group.options.decay = config.decay;
    if (!decay) group.options.weight_decay = 0;
    groups.push_back(std::move(group));
  }
  return groups;
}

std::unique_ptr<Optimizer> make_sgd(const TrainerConfig& config, ParameterArena& arena, int first_slot) {
  const SgdOptions options{.momentum = static_cast<float>(config.momentum),
                           .weight_decay = static_cast<float>(config.weight_decay),
                           .nesterov = config.nesterov && config.momentum > 0};
  return std::make_unique<Sgd>(arena, groups_of<Sgd>(config, arena, options), first_slot);
}

template <class Options>
std::unique_ptr<Optimizer> make_adam(const TrainerConfig& config, ParameterArena& arena, int first_slot) {
  const Options options{
      .beta1 = config.beta1, .beta2 = config.beta2, .weight_decay = static_cast<float>(config.weight_decay)};
  using O = AdamOf<Options>;
  return std::make_unique<O>(arena, groups_of<O>(config, arena, options), first_slot);
}

/// Muon for matrices and filters, AdamW for the rest.
std::unique_ptr<Optimizer> make_muon(const TrainerConfig& config, ParameterArena& arena, int first_slot) {
  const auto weight_decay = static_cast<float>(config.weight_decay);
  Muon::Group matrices;
  matrices.parameters = selectors::matrices();
  matrices.options = {.momentum = static_cast<float>(config.momentum),
                      .nesterov = config.nesterov,
                      .weight_decay = weight_decay,
                      .decay = config.decay};
  AdamW::Group rest;
  rest.parameters = selectors::none_of(selectors::matrices());
  rest.lr_scale = kRestOfMuon;
  rest.options = {.beta1 = config.beta1,
                  .beta2 = config.beta2,
                  .weight_decay = config.decay == Decay::all ? weight_decay : 0,
                  .decay = config.decay};
  const auto parameters = arena.parameters();
  const bool any = std::any_of(parameters.begin(), parameters.end(), rest.parameters);
  return std::make_unique<Muon>(
      arena, std::vector{matrices}, first_slot,
      any ? std::make_unique<AdamW>(arena, std::vector{rest}, first_slot + 1) : nullptr);
}

constexpr OptimizerEntry kOptimizers[] = {
    // kind, name, momentum, betas, whole_parameters, lr, weight_decay, usual_momentum, make
    {OptimizerKind::sgd, "sgd", true, false, Sgd::kWholeParameters, -1, -1, -1, make_sgd},
    {OptimizerKind::adam, "adam", false, true, Adam::kWholeParameters, 0.001, 0, -1, make_adam<AdamOptions>},
    {OptimizerKind::adamw, "adamw", false, true, AdamW::kWholeParameters, 0.001, 0.01, -1,
     make_adam<AdamWOptions>},
    {OptimizerKind::muon, "muon", true, true, Muon::kWholeParameters, 0.02, 0, 0.95, make_muon},
};

/// What a rate for `usual` images a step is multiplied by for `images`.
double growth(LrScaling rule, std::int64_t images, std::int64_t usual) {
  const double batches = static_cast<double>(images) / static_cast<double>(usual);
  switch (rule) {
    case LrScaling::none: break;
    case LrScaling::linear: return batches;
    case LrScaling::sqrt: return std::sqrt(batches);
  }
  return 1;
}

/// By which rule fit_usual_rate() fits.
LrScaling fitted_by(OptimizerKind kind) {
  return entry_of(kind).betas ? LrScaling::sqrt : LrScaling::linear;
}

Schedule at_least(double rate, Schedule schedule) {
  return [low = static_cast<float>(rate), schedule = std::move(schedule)](std::int64_t step) {
    return std::max(schedule(step), low);
  };
}

Schedule after_warm_up(const TrainerConfig& config, double rate, std::int64_t steps,
                       std::int64_t steps_per_epoch) {
  const ScheduleOptions& options = config.schedule_options;
  switch (options.kind) {
    case ScheduleKind::constant:
    case ScheduleKind::plateau: return schedules::constant(rate);
    case ScheduleKind::step:
      return at_least(config.min_lr,
                      schedules::step_decay(rate, options.epochs.at(0) * steps_per_epoch, options.factor));
    case ScheduleKind::multistep: {
      std::vector<std::int64_t> milestones;
      for (const std::int64_t epoch : options.epochs) milestones.push_back(epoch * steps_per_epoch);
      return at_least(config.min_lr, schedules::multi_step(rate, std::move(milestones), options.factor));
    }
    case ScheduleKind::linear:
      return schedules::linear(rate, std::max<std::int64_t>(steps, 1), config.min_lr);
    case ScheduleKind::cosine:
    case ScheduleKind::one_cycle: break;
  }
  return schedules::cosine(rate, std::max<std::int64_t>(steps, 1), config.min_lr);
}

}  // namespace

std::span<const OptimizerEntry> optimizer_table() {
  return kOptimizers;
}

std::string_view name_of(ScheduleKind kind) {
  static constexpr std::string_view kNames[] = {"constant",  "step",    "multistep", "cosine",
                                                "one-cycle", "plateau", "linear"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::int64_t TrainingLength::steps(std::int64_t steps_per_epoch) const {
  if (count == 0) return 0;
  const double steps = in_epochs ? count * static_cast<double>(steps_per_epoch) : count;
  return std::max<std::int64_t>(1, std::llround(steps));
}

std::string text(const ScheduleOptions& options) {
  const std::string_view name = name_of(options.kind);
  switch (options.kind) {
    case ScheduleKind::step:
    case ScheduleKind::multistep:
      return fmt::format("{}:{}:{}", name, fmt::join(options.epochs, ","), options.factor);
    case ScheduleKind::plateau: return fmt::format("{}:{}:{}", name, options.patience, options.factor);
    default: return std::string(name);
  }
}

std::string text(const TrainingLength& length) {
  return fmt::format("{}{}", length.count, length.in_epochs ? "e" : "");
}

std::int64_t images_of_step(const TrainerConfig& config) {
  return config.batch_size * config.accumulate;
}

void fit_usual_rate(TrainerConfig& config, std::int64_t usual) {
  const std::int64_t images = images_of_step(config);
  if (images >= usual) return;
  config.lr_scaling_batch = usual;
  config.lr_is_fitted = true;
  config.lr *= growth(fitted_by(config.optimizer_kind), images, usual);
}

double highest_rate(const TrainerConfig& config) {
  return config.lr * growth(config.lr_scaling, images_of_step(config), config.lr_scaling_batch);
}

Schedule make_schedule(const TrainerConfig& config, std::int64_t steps, std::int64_t steps_per_epoch) {
  const double rate = highest_rate(config);
  if (config.schedule) return config.schedule(rate, steps);
  ATH_CHECK(config.min_lr < rate, "--min-lr: must be below the highest learning rate {}, but got {}", rate,
            config.min_lr);
  const std::int64_t warmup = config.warmup ? config.warmup->steps(steps_per_epoch) : 0;
  if (config.schedule_options.kind == ScheduleKind::one_cycle) {
    const double rise = config.warmup
                            ? std::min(static_cast<double>(warmup) / static_cast<double>(steps), 1.0)
                            : kOneCycleRise;
    const double last = config.min_lr > 0 ? rate / kOneCycleDivisor / config.min_lr : kOneCycleFinalDivisor;
    const Schedule cycle = schedules::one_cycle({.max_rate = rate,
                                                 .total = steps,
                                                 .rise = rise,
                                                 .div_factor = kOneCycleDivisor,
                                                 .final_div_factor = last});
    return config.min_lr > 0 ? at_least(config.min_lr, cycle) : cycle;  // its first rate may also be lower
  }
  Schedule after = after_warm_up(config, rate, steps - warmup, steps_per_epoch);
  if (warmup == 0) return after;
  // Its first step also trains.
  return schedules::warm_up(warmup, std::move(after), 1 / static_cast<double>(warmup));
}

bool depends_on_length(const TrainerConfig& config) {
  const ScheduleKind kind = config.schedule_options.kind;
  return config.schedule || kind == ScheduleKind::cosine || kind == ScheduleKind::one_cycle ||
         kind == ScheduleKind::linear;
}

std::unique_ptr<Optimizer> make_optimizer(const TrainerConfig& config, ParameterArena& arena,
                                          int first_slot) {
  if (config.optimizer) return config.optimizer(arena);
  return entry_of(config.optimizer_kind).make(config, arena, first_slot);
}

std::string too_short_for_schedule(const TrainerConfig& config, std::int64_t steps,
                                   std::int64_t steps_per_epoch) {
  if (config.schedule || steps != config.epochs * steps_per_epoch) return {};  // a trial, or cut short
  const std::int64_t warmup = config.warmup ? config.warmup->steps(steps_per_epoch) : 0;
  if (warmup >= steps)
    return fmt::format("--warmup {}: is no shorter than the run, so the learning rate rises until its end",
                       text(*config.warmup));
  const ScheduleOptions& options = config.schedule_options;
  const bool falls = options.epochs.empty() || warmup + options.epochs[0] * steps_per_epoch < steps;
  if (falls) return {};
  return fmt::format("--schedule {}: the run ends before that epoch, so the learning rate never falls",
                     text(options));
}

std::string describe_recipe(const TrainerConfig& config, bool own_optimizers) {
  std::string all;
  if (own_optimizers || config.optimizer) {
    all = "the program's own optimizers, ";
  } else {
    all = entry_of(config.optimizer_kind).momentum
              ? fmt::format("{} (momentum {}", name_of(config.optimizer_kind), config.momentum)
              : fmt::format("{} (betas {} {}", name_of(config.optimizer_kind), config.beta1, config.beta2);
    all += fmt::format(", weight decay {}), ", config.weight_decay);
  }
  const double rate = highest_rate(config);
  all += fmt::format("learning rate up to {:.6g}", rate);
  if (config.lr_scaling != LrScaling::none) {
    all += fmt::format(" ({} for {} images, scaled)", config.lr, config.lr_scaling_batch);
  } else if (config.lr_is_fitted) {
    const std::int64_t images = images_of_step(config);
    all += fmt::format(" ({:.6g} for {} images, scaled to {})",
                       config.lr / growth(fitted_by(config.optimizer_kind), images, config.lr_scaling_batch),
                       config.lr_scaling_batch, images);
  }
  if (!config.schedule) all += fmt::format(", {}", text(config.schedule_options));
  if (config.warmup && !config.schedule)
    all += fmt::format(", warm-up {} {}{}", config.warmup->count, config.warmup->in_epochs ? "epoch" : "step",
                       config.warmup->count == 1 ? "" : "s");
  return all;
}

}  // namespace athanor
