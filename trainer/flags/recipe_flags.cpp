// Flags of the recipe: the optimizer, its learning rate, and regularisation.

#include <string>
#include <vector>

#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/detail/shared_flags.h"
#include "trainer/flags/recipe.h"

namespace athanor::detail {
namespace {

using namespace read_flag;

/// In [0, high).
auto share(double high = 1) {
  return [=](Text flag, Text text) {
    const auto value = number<double>(flag, text, "a number");
    ATH_CHECK(value == 0 || (value >= 1e-30 && value < high), "{}: must be in [0, {}), but got {}", flag,
              high, text);
    return value;
  };
}

double not_negative(Text flag, Text text) {
  const auto value = number<double>(flag, text, "a number");
  ATH_CHECK(value == 0 || (value >= 1e-30 && value <= 1e15), "{}: must be 0 to 1e15, but got {}", flag, text);
  return value;
}

/// "constant", "step:30", "multistep:30,60:0.2", "plateau:5:0.5", ...
ScheduleOptions schedule(Text flag, Text text) {
  const std::vector<std::string> parts = split(text, ':');
  ScheduleOptions options;
  options.kind = one_of<ScheduleKind>({{"constant", ScheduleKind::constant},
                                       {"step", ScheduleKind::step},
                                       {"multistep", ScheduleKind::multistep},
                                       {"cosine", ScheduleKind::cosine},
                                       {"one-cycle", ScheduleKind::one_cycle},
                                       {"plateau", ScheduleKind::plateau}})(flag, parts[0]);
  const bool steps = options.kind == ScheduleKind::step || options.kind == ScheduleKind::multistep;
  const bool takes = steps || options.kind == ScheduleKind::plateau;
  ATH_CHECK(takes || parts.size() == 1, "{}: {} takes no value, but got '{}'", flag, parts[0], text);
  ATH_CHECK(parts.size() <= 3 && (!steps || parts.size() >= 2),
            "{}: must be like step:30 or step:30:0.1, multistep:30,60 or multistep:30,60:0.1, plateau:10 or "
            "plateau:10:0.1 (epochs, then the factor), but got '{}'",
            flag, text);
  if (parts.size() > 1 && steps) {
    for (const std::string& epoch : split(parts[1], ',')) {
      options.epochs.push_back(whole(1)(flag, epoch));
      ATH_CHECK(options.epochs.size() == 1 || *(options.epochs.end() - 2) < options.epochs.back(),
                "{}: epochs must increase, but got '{}'", flag, text);
    }
    ATH_CHECK(options.kind == ScheduleKind::multistep || options.epochs.size() == 1,
              "{}: step takes one number of epochs, but got '{}'; use multistep", flag, text);
  } else if (parts.size() > 1) {
    options.patience = whole(0)(flag, parts[1]);
  }
  if (parts.size() > 2) options.factor = positive(1e-6, 1 - 1e-6)(flag, parts[2]);
  return options;
}

struct Scaling {
  LrScaling kind;
  std::int64_t batch;
};
Scaling lr_scaling(Text flag, Text text) {
  if (text == "none") return {LrScaling::none, 256};
  const std::size_t colon = text.find(':');
  const LrScaling kind = one_of<LrScaling>({{"linear", LrScaling::linear}, {"sqrt", LrScaling::sqrt}})(
      flag, text.substr(0, colon));
  ATH_CHECK(colon != std::string::npos,
            "{}: must name the batch size that --lr was chosen for, as in {}:256, but got '{}'", flag, text,
            text);
  return {kind, whole(1)(flag, text.substr(colon + 1))};
}

const char* text(Decay decay) {
  return decay == Decay::all ? "all" : "matrices";
}

void add_optimizer_flags(FlagTable& flags, TrainerConfig& config) {
  flags.add("--optimizer NAME",
            fmt::format("sgd, adam, adamw, or muon for matrices with adamw for the rest [{}]",
                        config.optimizer ? "the program's" : name_of(config.optimizer_kind)),
            config.optimizer_kind, [&config](Text flag, Text text) {
              config.optimizer = {};
              return one_of<OptimizerKind>({{"sgd", OptimizerKind::sgd},
                                            {"adam", OptimizerKind::adam},
                                            {"adamw", OptimizerKind::adamw},
                                            {"muon", OptimizerKind::muon}})(flag, text);
            });
  flags.add("--lr RATE", "highest learning rate [{}]", config.lr, positive());
  flags.add("--momentum MU", "momentum of sgd and muon [{}]", config.momentum, share());
  flags.add("--nesterov on|off", fmt::format("use Nesterov momentum [{}]", config.nesterov ? "on" : "off"),
            config.nesterov, on_or_off);
  flags.add(
      "--betas B1,B2",
      fmt::format("decay rates of adam's and adamw's moving averages [{},{}]", config.beta1, config.beta2),
      config.beta1, [&config](Text flag, Text text) {
        const std::vector<std::string> parts = split(text, ',');
        ATH_CHECK(parts.size() == 2, "{}: must be two numbers, as in 0.9,0.999, but got '{}'", flag, text);
        config.beta2 = share()(flag, parts[1]);
        return share()(flag, parts[0]);
      });
  flags.add("--weight-decay,--wd X", "weight decay coefficient [{}]", config.weight_decay, not_negative);
  flags.add("--decay WHAT",
            fmt::format("parameters that --weight-decay applies to: matrices (and filters) only, or all, as "
                        "in PyTorch [{}]",
                        text(config.decay)),
            config.decay, one_of<Decay>({{"matrices", Decay::matrices}, {"all", Decay::all}}));
}

void add_schedule_flags(FlagTable& flags, TrainerConfig& config) {
  flags.add("--schedule KIND",
            fmt::format("learning rate schedule: constant; step:EPOCHS[:FACTOR]; "
                        "multistep:E1,E2,...[:FACTOR]; cosine; one-cycle; plateau[:PATIENCE[:FACTOR]], which "
                        "lowers the rate when --monitor or val_loss stops improving [{}]",
                        config.schedule ? "the program's" : athanor::text(config.schedule_options)),
            config.schedule_options, [&config](Text flag, Text text) {
              config.schedule = {};
              return schedule(flag, text);
            });
  flags.add("--warmup N[e]",
            "steps, or epochs (as in 5e), in which the rate rises from near 0 [none; with one-cycle a "
            "quarter of the run]",
            config.warmup, training_length);
  flags.add("--min-lr RATE", "lowest learning rate after the warm-up [0; one-cycle: --lr / 25,000]",
            config.min_lr, not_negative);
  flags.add("--scale-lr RULE:BATCH",
            "linear:256 or sqrt:256: --lr was chosen for batch size 256; scale it with the batch size or its "
            "square root [none]",
            config.lr_scaling, [&config](Text flag, Text text) {
              const Scaling scaling = lr_scaling(flag, text);
              config.lr_scaling_batch = scaling.batch;
              return scaling.kind;
            });
}

}  // namespace

void add_recipe_flags(FlagTable& flags, TrainerConfig& config) {
  flags.group("Recipe");
  flags.add("--recipe FILE",
            "read flags from a file with NAME = \"VALUE\" in each line, such as recipe.toml of a run; the "
            "command line takes precedence [none]",
            config.recipe, path);
  add_optimizer_flags(flags, config);
  add_schedule_flags(flags, config);
  if (config.models.empty()) return;  // a custom task handles its own losses and layers
  flags.add("--label-smoothing X", "share of a label's weight that is spread over all classes [{}]",
            config.label_smoothing, share());
  flags.add("--class-weights KIND",
            "balanced: the training loss weighs classes with fewer images more; or none [none]",
            config.balanced_classes, one_of<bool>({{"none", false}, {"balanced", true}}));
  flags.add("--dropout PROB", "drop probability of the model's dropout layers [the model's own]",
            config.dropout, share());
}

void fit_to_optimizer(FlagTable& flags, TrainerConfig& config) {
  if (!flags.given("--optimizer") || config.optimizer_kind == OptimizerKind::sgd) return;
  const auto unless_given = [&](const char* flag, double& value, double usual) {
    if (flags.given(flag)) return;
    value = usual;
    flags.set_standard(flag, fmt::format("{}", usual));
  };
  const bool muon = config.optimizer_kind == OptimizerKind::muon;
  unless_given("--lr", config.lr, muon ? 0.02 : 0.001);
  unless_given("--weight-decay", config.weight_decay,
               config.optimizer_kind == OptimizerKind::adamw ? 0.01 : 0);
  if (muon) unless_given("--momentum", config.momentum, 0.95);
}

}  // namespace athanor::detail
