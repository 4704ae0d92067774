// What must be the same in a run that goes on: written to checkpoints, and compared in the user's words.

#include <algorithm>
#include <iterator>

#include "tensor/error.h"
#include "trainer/config.h"
#include "trainer/run_state.h"

namespace athanor {
namespace {

std::string describe(const LossScaling& scaling) {
  if (scaling.is_fixed()) return fmt::format("{}", scaling.initial);
  return fmt::format("dynamic from {} in [{}, {}], times {} after {} steps, times {}", scaling.initial,
                     scaling.floor, scaling.ceiling, scaling.growth, scaling.growth_interval,
                     scaling.backoff);
}

std::string describe(const Augment& augment) {
  std::string text =
      fmt::format("pad {}{}, flip {}, cutout {}", augment.pad,
                  augment.padding == Padding::reflect ? " reflected" : "", augment.flip, augment.cutout);
  const ColourJitter& colour = augment.colour;
  if (colour.any()) {
    text += fmt::format(", brightness {}, contrast {}, saturation {}, hue {}", colour.brightness,
                        colour.contrast, colour.saturation, colour.hue);
  }
  return text;
}

}  // namespace

StateDict settings_of(const FitInfo& info, const Normalization& pixels, const Schedule& schedule,
                      const std::string& optimizer) {
  const TrainerConfig& config = info.config;
  StateDict settings;
  const auto set = [&](const char* name, const auto& value) { settings.set(name, fmt::format("{}", value)); };
  set("model", config.model);
  set("seed", config.seed);
  set("order", name_of(config.order));
  set("precision", name_of(config.precision));
  set("batch_size", config.batch_size);
  set("val_batch_size", config.val_batch_size);
  if (config.sync_bn) set("sync_bn", config.sync_bn);
  set("accumulate", config.accumulate);
  set("epochs", config.epochs);
  set("schedule_steps", info.total_steps);
  set("lr", config.lr);
  set("clip_norm", config.clip_norm);
  set("clip_value", config.clip_value);
  set("skip_outliers", config.skip_outliers);
  set("ema", config.ema_decay);
  set("loss_scale", config.loss_scaling ? describe(*config.loss_scaling) : "automatic");
  set("f32_gradients", config.f32_gradients);
  set("early_stop", config.early_stop
                        ? fmt::format("{}:{}", config.early_stop->metric, config.early_stop->patience)
                        : "none");
  set("momentum", config.momentum);
  set("weight_decay", fmt::format("{}{}", config.weight_decay, config.decay == Decay::all ? " of all" : ""));
  set("label_smoothing", config.label_smoothing);
  set("augment", describe(config.augment));
  set("optimizer", optimizer);
  // A schedule is a function: here are some of its values.
  std::vector<float> rates;
  for (std::int64_t i = 0; i <= 4; ++i) rates.push_back(schedule(i * (info.total_steps - 1) / 4));
  set("learning_rates", fmt::format("{:.6g}", fmt::join(rates, " ")));
  set("images", fmt::format("{}x{}x{}, {} classes", info.spec.height, info.spec.width, info.spec.channels,
                            info.spec.classes));
  set("train_samples", info.train_samples);
  set("val_samples", info.val_samples);
  set("pixels", fmt::format("mean {:.6g}, deviation {:.6g}", fmt::join(pixels.mean, " "),
                            fmt::join(pixels.stddev, " ")));
  return settings;
}

namespace {

/// What a user knows a setting by: a flag, or a part of the program or of the data.
struct Known {
  const char* setting;
  const char* name;
  const char* unset = nullptr;  ///< the value that stands for a flag that is not given
  /// Where one of these differs, so does this, and nothing is said of it.
  std::vector<std::string> follows = {};
};

const std::vector<Known>& known_settings() {
  static const std::vector<Known> known{
      {"model", "--model", ""},
      {"seed", "--seed"},
      {"order", "--order"},
      {"precision", "--precision"},
      {"batch_size", "--batch-size"},
      {"val_batch_size", "--val-batch-size", "0"},
      {"sync_bn", "--sync-bn", "false"},
      {"accumulate", "--accumulate"},
      {"epochs", "--epochs"},
      {"schedule_steps",
       "the number of steps (--max-steps)",
       nullptr,
       {"epochs", "batch_size", "accumulate", "train_samples"}},
      {"lr", "--lr"},
      {"clip_norm", "--clip-norm", "0"},
      {"clip_value", "--clip-value", "0"},
      {"skip_outliers", "--skip-outliers", "0"},
      {"ema", "--ema", "0"},
      {"loss_scale", "--loss-scale", "automatic"},
      {"f32_gradients", "--grad-dtype f32", "false"},
      {"early_stop", "--early-stop", "none"},
      {"momentum", "the program's momentum"},
      {"weight_decay", "the program's weight decay"},
      {"label_smoothing", "the program's label smoothing"},
      {"augment", "the program's augmentation"},
      {"optimizer", "the program's optimizer"},
      {"learning_rates", "the program's learning rate, at five steps,", nullptr, {"lr", "schedule_steps"}},
      {"images", "the images' size"},
      {"train_samples", "the number of images to train on"},
      {"val_samples", "the number of images to validate on"},
      {"pixels", "the images' mean and deviation"},
  };
  return known;
}

/// Written where it is given, and only there.
std::string value_of(const StateDict& settings, const std::string& name) {
  return name == "sync_bn" && !settings.contains(name) ? "false" : settings.text(name);
}

bool any_of(const std::vector<std::string>& names, const std::vector<std::string>& wanted) {
  return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

std::string shown(const Known& known, const std::string& value) {
  if (known.unset && value == known.unset) return "not given";
  if (value == "true") return "given";
  return value.find(' ') == std::string::npos ? value : fmt::format("'{}'", value);
}

}  // namespace

void check_settings(const StateDict& saved, const StateDict& mine) {
  std::vector<std::string> names = mine.names(), differ;
  if (saved.contains("sync_bn") && !mine.contains("sync_bn")) names.emplace_back("sync_bn");
  std::copy_if(names.begin(), names.end(), std::back_inserter(differ),
               [&](const std::string& name) { return value_of(mine, name) != value_of(saved, name); });
  saved.require_all_used("settings");
  std::string differences;
  for (const std::string& name : differ) {
    const auto& all = known_settings();
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const Known& one) { return one.setting == name; });
    const Known known = at == all.end() ? Known{name.c_str(), name.c_str()} : *at;
    if (any_of(differ, known.follows)) continue;
    differences += fmt::format("{}{} is {} and was {}", differences.empty() ? "" : ", ", known.name,
                               shown(known, value_of(mine, name)), shown(known, value_of(saved, name)));
  }
  ATH_CHECK(differences.empty(),
            "settings must be those of the run that is resumed, but {}{}; set back what differs, or begin a "
            "run of its own with these weights: --pretrained FILE and another --checkpoint-dir",
            differences,
            any_of(differ, {"lr", "schedule_steps"}) ? " (the learning rate's course depends on it)" : "");
}

}  // namespace athanor
