#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/optimizer.h"
#include "optim/schedule.h"

// The optimizer and its learning rate, as chosen by flags.

namespace athanor {

struct TrainerConfig;

/// The values of `--optimizer`, and of `--schedule`.
enum class OptimizerKind : std::uint8_t { sgd, adam, adamw, muon };
enum class ScheduleKind : std::uint8_t { constant, step, multistep, cosine, one_cycle, plateau, linear };
/// How the learning rate scales with the batch size.
enum class LrScaling : std::uint8_t { none, linear, sqrt };

/// What the flags know of an optimizer.
struct OptimizerEntry {
  OptimizerKind kind;
  std::string_view name;    ///< as the flag writes it, and Optimizer::kind()
  bool momentum, betas;     ///< whether it has --momentum and --nesterov, and --betas
  bool whole_parameters;    ///< Optimizer::kWholeParameters
  double lr, weight_decay;  ///< its usual settings; negative: the program's
  double usual_momentum;    ///< likewise
  /// Its groups use learning rates from `first_slot` on.
  std::unique_ptr<Optimizer> (*make)(const TrainerConfig& config, ParameterArena& arena, int first_slot);
};
/// All, in the order of the enum.
std::span<const OptimizerEntry> optimizer_table();
inline const OptimizerEntry& entry_of(OptimizerKind kind) {
  return optimizer_table()[static_cast<std::size_t>(kind)];
}

/// As the flag writes it.
inline std::string_view name_of(OptimizerKind kind) {
  return entry_of(kind).name;
}
std::string_view name_of(ScheduleKind kind);

/// --schedule with its parameters.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::one_cycle;
  /// In epochs. step: multiplies the rate by `factor` at every multiple; multistep: at each of these.
  std::vector<std::int64_t> epochs = {};
  double factor = 0.1;
  std::int64_t patience = 10;  ///< plateau: validations without improvement

  bool operator==(const ScheduleOptions&) const = default;
};

/// A duration of training, in steps or epochs.
struct TrainingLength {
  double count = 0;
  bool in_epochs = false;

  /// At least 1 if positive.
  std::int64_t steps(std::int64_t steps_per_epoch) const;
  bool is_whole_epochs() const { return in_epochs && count == std::floor(count); }
  bool operator==(const TrainingLength&) const = default;
};

/// In the flags' syntax: "cosine", "step:30:0.1", "multistep:30,60:0.1", "plateau:10:0.1".
std::string text(const ScheduleOptions& options);
/// "500", "5e".
std::string text(const TrainingLength& length);

/// Images of a step: of all its backward passes, over all ranks.
std::int64_t images_of_step(const TrainerConfig& config);
/// Lowers a rate that no flag has set, and that is for steps of `usual` images, to steps of fewer: in
/// proportion with sgd (Goyal et al. 2017), by the root with other optimizers (Malladi et al. 2022), as timm
/// does. It is not raised for more images: a rate that is good for few may be near the limit.
void fit_usual_rate(TrainerConfig& config, std::int64_t usual);
/// The highest learning rate: --lr, scaled to a step's batch by --scale-lr.
double highest_rate(const TrainerConfig& config);
/// The run's learning rate over `steps` steps: the program's schedule if any, else --schedule, with --warmup
/// and --min-lr.
Schedule make_schedule(const TrainerConfig& config, std::int64_t steps, std::int64_t steps_per_epoch);
/// Whether its rates depend on the length of the run.
bool depends_on_length(const TrainerConfig& config);
/// The program's optimizer if any, else --optimizer. Its groups use learning rates from `first_slot` on.
std::unique_ptr<Optimizer> make_optimizer(const TrainerConfig& config, ParameterArena& arena, int first_slot);
/// Throws ArgumentError, naming the flag, if the command line has one that such a run ignores.
void check_recipe_is_used(const TrainerConfig& config, bool own_optimizers, bool own_schedules);
/// A line for the user if a run of `steps`, all of its epochs, is too short for its --warmup or --schedule;
/// else "".
std::string too_short_for_schedule(const TrainerConfig& config, std::int64_t steps,
                                   std::int64_t steps_per_epoch);
/// "sgd (momentum 0.9, weight decay 0.0005), learning rate up to 0.1, one-cycle", for the user. Optimizers
/// that the program or its task makes (`own_optimizers`) are not described.
std::string describe_recipe(const TrainerConfig& config, bool own_optimizers);

}  // namespace athanor
