// Settings that must be equal in a resumed run: stored in checkpoints, and compared in the user's terms.

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "kernels/hash.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/checkpoints/run_state.h"
#include "trainer/config.h"

namespace athanor {
namespace {

template <class T> std::string text(const T& value) {
  return fmt::format("{}", value);
}

std::string text(const std::optional<LossScaling>& scaling) {
  if (!scaling) return "automatic";
  if (scaling->is_fixed()) return text(scaling->initial);
  return fmt::format("dynamic from {} in [{}, {}], times {} after {} steps, times {}", scaling->initial,
                     scaling->floor, scaling->ceiling, scaling->growth, scaling->growth_interval,
                     scaling->backoff);
}

std::string text(const std::optional<EarlyStop>& stop) {
  if (!stop) return "none";
  const char* const goal = !stop->goal ? "" : stop->goal == Goal::minimum ? ":min" : ":max";
  if (stop->patience == EarlyStop::kNever) return fmt::format("{}{} (--monitor)", stop->metric, goal);
  std::string all = fmt::format("{}:{}{}", stop->metric, stop->patience, goal);
  if (stop->min_delta != 0) all += fmt::format(",min_delta={}", stop->min_delta);
  if (stop->stop_at) all += fmt::format(",stop_at={}", *stop->stop_at);
  if (stop->diverge_at) all += fmt::format(",diverge_at={}", *stop->diverge_at);
  return all;
}

std::string text(const std::vector<Freeze>& freezes) {
  std::vector<std::string> all;
  for (const Freeze& one : freezes)
    all.push_back(one.epochs == Freeze::kAlways ? one.prefix : fmt::format("{}:{}", one.prefix, one.epochs));
  return all.empty() ? "none" : fmt::format("{}", fmt::join(all, " "));
}

std::string text(const Augment& augment) {
  std::string all =
      fmt::format("pad {}{}, flip {}, cutout {}", augment.pad,
                  augment.padding == Padding::reflect ? " reflected" : "", augment.flip, augment.cutout);
  if (augment.alternate_flip) all += ", flip alternates";
  const ColourJitter& colour = augment.colour;
  if (colour.any()) {
    all += fmt::format(", brightness {}, contrast {}, saturation {}, hue {}", colour.brightness,
                       colour.contrast, colour.saturation, colour.hue);
  }
  // Programs that crop while decoding have always done so: their usual crop is not mentioned.
  const auto& crop = augment.resized_crop;
  if (augment.crops_when_decoded && !crop) all += ", no resized crop";
  if (crop && !(augment.crops_when_decoded && *crop == RandomResizedCrop{}))
    all += fmt::format(", resized crop of area {} to {} and ratio {} to {}", crop->min_area, crop->max_area,
                       crop->min_ratio, crop->max_ratio);
  if (const auto& rand = augment.rand_augment)
    all += fmt::format(", rand-augment {} of magnitude {}", rand->operations, rand->magnitude);
  if (augment.random_erasing > 0) all += fmt::format(", random erasing {}", augment.random_erasing);
  if (augment.mixup > 0) all += fmt::format(", mixup {}", augment.mixup);
  if (augment.cutmix > 0) all += fmt::format(", cutmix {}", augment.cutmix);
  return all;
}

std::string text(const BatchLimit& limit) {
  if (limit.count >= 0) return fmt::format("{}", limit.count);
  return limit.share == 1 ? "all" : fmt::format("a share of {}", limit.share);
}

std::string scaling_text(const TrainerConfig& config) {
  switch (config.lr_scaling) {
    case LrScaling::none: break;
    case LrScaling::linear: return fmt::format("linear:{}", config.lr_scaling_batch);
    case LrScaling::sqrt: return fmt::format("sqrt:{}", config.lr_scaling_batch);
  }
  return "none";
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_more(const std::string& saved, const std::string& value) {
  return whole_number(saved) < whole_number(value);
}

// The same metric with the same goal, of two texts of an EarlyStop: what is saved of it stays valid.
bool watches_the_same(const std::string& saved, const std::string& value) {
  const auto watched = [](const std::string& text) {
    const char* const goal = text.find(":max") != text.npos   ? ":max"
                             : text.find(":min") != text.npos ? ":min"
                                                              : "";
    return text.substr(0, text.find_first_of(":, ")) + goal;
  };
  return watched(saved) == watched(value);
}

// A schedule is a function, so it is described by some of its values.
std::string text(const std::vector<Schedule>& schedules, std::int64_t steps) {
  std::vector<std::string> all;
  for (const Schedule& schedule : schedules) {
    std::vector<float> rates;
    for (std::int64_t i = 0; i <= 4; ++i) rates.push_back(schedule(i * (steps - 1) / 4));
    all.push_back(fmt::format("{:.6g}", fmt::join(rates, " ")));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

// Checkpoints of versions before this setting lack it.
Setting added_later(std::string name, std::string called, std::string value, std::string unset) {
  return {.name = std::move(name),
          .called = std::move(called),
          .value = std::move(value),
          .unset = std::move(unset),
          .may_lack = true};
}

std::vector<Setting> recipe_of(const TrainerConfig& config, const std::vector<Schedule>& schedules,
                               std::int64_t schedule_steps, const std::string& optimizer) {
  return {
      {"momentum", "--momentum", text(config.momentum)},
      added_later("nesterov", "--nesterov", config.nesterov ? "on" : "off", "on"),
      added_later("betas", "--betas", fmt::format("{},{}", config.beta1, config.beta2), "0.9,0.999"),
      {"weight_decay", "--weight-decay",
       text(config.weight_decay) + (config.decay == Decay::all ? " of all" : "")},
      {"label_smoothing", "--label-smoothing", text(config.label_smoothing)},
      added_later("dropout", "--dropout", config.dropout ? text(*config.dropout) : "the model's",
                  "the model's"),
      added_later("schedule", "--schedule", athanor::text(config.schedule_options), "one-cycle"),
      added_later("warmup", "--warmup", config.warmup ? athanor::text(*config.warmup) : "none", "none"),
      added_later("min_lr", "--min-lr", text(config.min_lr), "0"),
      added_later("scale_lr", "--scale-lr", scaling_text(config), "none"),
      {"augment", "--augment",
       text(config.augment) + (config.views > 1 ? fmt::format(", {} views", config.views) : "")},
      {"optimizer", "--optimizer", optimizer},
      {.name = "learning_rates",
       .called = "the learning rate, at five steps,",
       .value = text(schedules, schedule_steps),
       .follows = {"lr", "schedule_steps", "schedule", "warmup", "min_lr", "scale_lr"}},
  };
}

// Thousands of names would fill the screen: the first ones, and a hash of all.
std::string text_of_classes(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string all;
  kernels::HashOf hash;
  for (std::size_t i = 0; i < names.size(); ++i) {
    hash.add(kernels::fnv1a(names[i]));
    if (i < kShown) all += fmt::format("{}{}", i == 0 ? "" : ", ", printable(names[i]));
  }
  if (names.size() > kShown)
    all += fmt::format(" and {} more, hash {:08x}", names.size() - kShown, hash.value() >> 32);
  return names.empty() ? "without names" : all;
}

std::string text_of_id(std::uint64_t id) {
  return fmt::format("hash {:016x}", id);
}

std::vector<Setting> data_of(const FitInfo& info, const Normalization& pixels) {
  const char* const decode = info.config.decode == ImageWork::gpu ? "gpu" : "cpu";
  return {
      {"images", "the images' size",
       fmt::format("{}x{}x{}, {} classes", info.spec.height, info.spec.width, info.spec.channels,
                   info.spec.classes)},
      added_later("decode", "--decode", decode, "cpu"),
      {"train_samples", "the number of training images", text(info.train_samples)},
      {"val_samples", "the number of validation images", text(info.val_samples)},
      {.name = "classes",
       .called = "the list of classes",
       .value = text_of_classes(info.class_names),
       .may_lack = true,
       .follows = {"images"}},
      {.name = "train_data",
       .called = "the training data (names, bytes and labels of its samples, in order)",
       .value = text_of_id(info.train_id),
       .may_lack = true,
       .follows = {"images", "classes", "train_samples", "synthetic"}},
      {.name = "val_data",
       .called = "the validation data (names, bytes and labels of its samples, in order)",
       .value = text_of_id(info.val_id),
       .may_lack = true,
       .follows = {"images", "classes", "train_samples", "val_samples", "train_data", "synthetic"}},
      {"pixels", "the images' mean and deviation",
       fmt::format("mean {:.6g}, deviation {:.6g}", fmt::join(pixels.mean, " "),
                   fmt::join(pixels.stddev, " "))},
  };
}

}  // namespace

std::vector<Setting> settings_of(const FitInfo& info, const Normalization& pixels,
                                 const std::vector<Schedule>& schedules, std::int64_t schedule_steps,
                                 const std::string& optimizer) {
  const TrainerConfig& config = info.config;
  std::vector<Setting> all{
      {"model", "--model", config.model},
      {"seed", "--seed", text(config.seed)},
      {"order", "--order", text(name_of(config.order))},
      {"precision", "--precision", text(name_of(config.precision))},
      {"batch_size", "--batch-size", text(config.batch_size)},
      {"val_batch_size", "--val-batch-size", text(config.val_batch_size), "0"},
      added_later("sync_bn", "--sync-bn", text(config.sync_bn), "false"),
      {"accumulate", "--accumulate", text(config.accumulate)},
      {.name = "epochs", .called = "--epochs", .value = text(config.epochs), .may_follow = is_more},
      {.name = "schedule_steps",
       .called = "the number of steps (--max-steps)",
       .value = text(schedule_steps),
       .follows = {"epochs", "batch_size", "accumulate", "train_samples"}},
      {"lr", "--lr", text(config.lr)},
      {"clip_norm", "--clip-norm", text(config.clip_norm), "0"},
      {"clip_value", "--clip-value", text(config.clip_value), "0"},
      {"skip_outliers", "--skip-outliers", text(config.skip_outliers), "0"},
      {"ema", "--ema", text(config.ema_decay), "0"},
      {"loss_scale", "--loss-scale", text(config.loss_scaling), "automatic"},
      {"f32_gradients", "--grad-dtype f32", text(config.f32_gradients), "false"},
      {.name = "early_stop",
       .called = "--early-stop",
       .value = text(config.early_stop),
       .unset = "none",
       .may_follow = watches_the_same},
      added_later("monitor", "--monitor", text(config.monitor), "none"),
      added_later("freeze", "--freeze", text(config.freeze), "none"),
      added_later("class_weights", "--class-weights", config.balanced_classes ? "balanced" : "none", "none"),
      added_later("fused", "--fused", config.fused ? "on" : "off", "on"),
      added_later("synthetic", "--data synthetic", text(config.synthetic_images), "0"),
      added_later("val_every", "--val-every", athanor::text(config.val_every), "1e"),
      added_later("limit_train_batches", "--limit-train-batches", text(config.limit_train_batches), "all"),
      added_later("limit_val_batches", "--limit-val-batches", text(config.limit_val_batches), "all"),
      added_later("overfit_batches", "--overfit-batches", text(config.overfit_batches), "0"),
  };
  const auto append = [&all](std::vector<Setting> more) {
    all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  append(recipe_of(config, schedules, schedule_steps, optimizer));
  append(data_of(info, pixels));
  for (const OwnFlag& flag : config.own_flags)
    all.push_back({.name = "own." + flag.name.substr(2), .called = flag.name, .value = flag.value});
  return all;
}

StateDict state_of(const std::vector<Setting>& settings) {
  StateDict state;
  for (const Setting& setting : settings) {
    if (!setting.may_lack || setting.value != setting.unset) state.set(setting.name, setting.value);
  }
  return state;
}

std::int64_t saved_schedule_steps(const StateDict& saved) {
  const std::optional<std::int64_t> steps = whole_number(saved.text("schedule_steps"));
  ATH_CHECK(steps && *steps >= 0, "settings: schedule_steps must be a number, but is '{}'",
            saved.text("schedule_steps"));
  return *steps;
}

Schedule held_after(Schedule schedule, std::int64_t steps) {
  return [schedule = std::move(schedule), last = std::max<std::int64_t>(steps - 1, 0)](std::int64_t step) {
    return schedule(std::min(step, last));
  };
}

bool check_settings(const StateDict& saved, const std::vector<Setting>& mine, bool goes_on) {
  std::vector<std::string> differ;
  bool follows = false;
  const auto was = [&](const Setting& setting) {
    if (!setting.may_lack || saved.contains(setting.name)) return saved.text(setting.name);
    return setting.unset.empty() ? setting.value : setting.unset;
  };
  for (const Setting& setting : mine) {
    if (was(setting) == setting.value) continue;
    if (goes_on && setting.may_follow && setting.may_follow(was(setting), setting.value)) {
      follows = true;
    } else {
      differ.push_back(setting.name);
    }
  }
  saved.require_all_used("settings");
  const auto any_differs = [&](const std::vector<std::string>& names) {
    return std::find_first_of(differ.begin(), differ.end(), names.begin(), names.end()) != differ.end();
  };
  std::string differences;
  for (const Setting& setting : mine) {
    if (!any_differs({setting.name}) || any_differs(setting.follows)) continue;
    const auto shown = [&](const std::string& value) {
      if (value == setting.unset) return std::string("not given");
      if (value == "true") return std::string("given");
      return value.find(' ') == std::string::npos ? value : fmt::format("'{}'", value);
    };
    differences += fmt::format("{}{} is {} and was {}", differences.empty() ? "" : ", ", setting.called,
                               shown(setting.value), shown(was(setting)));
  }
  ATH_CHECK(differences.empty(),
            "settings must match those of the resumed run, but {}{}; restore what differs, or start a new "
            "run from these weights with --pretrained FILE and another --checkpoint-dir",
            differences,
            any_differs({"lr", "schedule_steps", "batch_size", "accumulate", "train_samples"})
                ? " (the learning rate schedule depends on it)"
                : "");
  return follows;
}

}  // namespace athanor
