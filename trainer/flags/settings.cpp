// Settings that must be equal in a resumed run: stored in checkpoints, and compared in the user's terms.

#include "trainer/flags/settings.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/ranges.h>

#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/flags/detail/settings_table.h"

namespace athanor {
namespace {

constexpr const char* kVersion = "2";

std::vector<Setting> of_table(const TrainerConfig& config, detail::Same same) {
  static const TrainerConfig usual{};
  std::vector<Setting> all;
  for (const detail::SettingGroup& group : detail::settings_table()) {
    for (const detail::SettingRow& row : group.rows) {
      if (row.same != same) continue;
      all.push_back({.name = row.key(),
                     .called = row.name(),
                     .value = row.compared_value(config),
                     .unset = row.shows_default() ? "" : row.compared_value(usual),
                     .before = row.compared_value(usual),
                     .may_follow = row.may_follow});
    }
  }
  return all;
}

/// Whether the rate is the program's, which no flag has set.
bool follows_the_batch(const TrainerConfig& config) {
  return std::ranges::any_of(
      config.flags, [](const FlagValue& flag) { return flag.name == "--lr" && flag.from == "default"; });
}

// A schedule is a function, so it is described by some of its values.
std::string text_of_rates(const std::vector<Schedule>& schedules, std::int64_t steps) {
  std::vector<std::string> all;
  for (const Schedule& schedule : schedules) {
    std::vector<float> rates;
    for (std::int64_t i = 0; i <= 4; ++i) rates.push_back(schedule(i * (steps - 1) / 4));
    all.push_back(fmt::format("{:.6g}", fmt::join(rates, " ")));
  }
  return fmt::format("{}", fmt::join(all, ", "));
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

void check_version(const StateDict& saved) {
  const std::string version = saved.contains("version") ? saved.text("version") : "1";
  ATH_CHECK(
      version == kVersion,
      "must be a checkpoint of version {}, but is of version {}; end its run with the program that began "
      "it, or start a new one from its weights with --pretrained FILE",
      kVersion, version);
}

}  // namespace

std::vector<Setting> settings_of(const FitInfo& info, const Normalization& pixels,
                                 const std::vector<Schedule>& schedules, std::int64_t schedule_steps,
                                 const std::string& optimizer) {
  std::vector<Setting> all = of_table(info.config, detail::Same::run);
  for (Setting& one : all)  // fit_usual_rate()
    if (one.name == "lr" && follows_the_batch(info.config)) one.follows = {"batch_size", "accumulate"};
  const ImageSpec& spec = info.spec;
  const auto add = [&all](const char* name, const char* called, const std::string& value,
                          std::vector<std::string> follows = {}) {
    all.push_back({.name = name, .called = called, .value = value, .follows = std::move(follows)});
  };
  add("schedule_steps", "the number of steps (--max-steps)", fmt::to_string(schedule_steps),
      {"epochs", "batch_size", "accumulate", "train_samples"});
  add("optimizer", "--optimizer", optimizer);
  add("learning_rates", "the learning rate, at five steps,", text_of_rates(schedules, schedule_steps),
      {"lr", "schedule_steps", "schedule", "warmup", "min_lr", "scale_lr"});
  add("images", "the images' size",
      fmt::format("{}x{}x{}, {} classes", spec.height, spec.width, spec.channels, spec.classes));
  add("train_samples", "the number of training images", fmt::to_string(info.train_samples));
  add("val_samples", "the number of validation images", fmt::to_string(info.val_samples));
  add("classes", "the list of classes", text_of_classes(info.class_names), {"images"});
  add("train_data", "the training data (names, bytes and labels of its samples, in order)",
      fmt::format("hash {:016x}", info.train_id), {"images", "classes", "train_samples", "data"});
  add("val_data", "the validation data (names, bytes and labels of its samples, in order)",
      fmt::format("hash {:016x}", info.val_id),
      {"images", "classes", "train_samples", "val_samples", "train_data", "data"});
  add("pixels", "the images' mean and deviation",
      fmt::format("mean {:.6g}, deviation {:.6g}", fmt::join(pixels.mean, " "),
                  fmt::join(pixels.stddev, " ")));
  for (const OwnFlag& flag : info.config.own_flags)
    all.push_back({.name = "own." + flag.name.substr(2), .called = flag.name, .value = flag.value});
  return all;
}

std::vector<Setting> settings_of_ranks(const TrainerConfig& config) {
  return of_table(config, detail::Same::ranks);
}

StateDict state_of(const std::vector<Setting>& settings) {
  StateDict state;
  state.set("version", std::string(kVersion));
  for (const Setting& setting : settings) state.set(setting.name, setting.value);
  return state;
}

std::int64_t saved_schedule_steps(const StateDict& saved) {
  check_version(saved);
  const std::string text = saved.text("schedule_steps");
  std::int64_t steps = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size() && steps >= 0,
            "settings: schedule_steps must be a number, but is '{}'", text);
  return steps;
}

Schedule held_after(Schedule schedule, std::int64_t steps) {
  return [schedule = std::move(schedule), last = std::max<std::int64_t>(steps - 1, 0)](std::int64_t step) {
    return schedule(std::min(step, last));
  };
}

bool check_settings(const StateDict& saved, const std::vector<Setting>& mine, bool may_extend) {
  check_version(saved);
  const auto saved_value = [&](const Setting& setting) {
    return setting.before && !saved.contains(setting.name) ? *setting.before : saved.text(setting.name);
  };
  std::vector<std::string> differ;
  bool follows = false;
  for (const Setting& setting : mine) {
    const std::string was = saved_value(setting);
    if (was == setting.value) continue;
    if (may_extend && setting.may_follow && setting.may_follow(was, setting.value)) {
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
                               shown(setting.value), shown(saved_value(setting)));
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
