#pragma once

#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "trainer/callback.h"
#include "trainer/loggers/appended_file.h"
#include "trainer/readable.h"

// Shared by all loggers: callbacks that write the results of steps and epochs to the run's folder, all with
// the same values and names. On rank 0 only.

namespace athanor {

/// Adds the configured loggers except JSON lines. They open their files when a run begins.
void add_loggers(Trainer& trainer, const TrainerConfig& config);

/// The folder of a run's files, or of the current phase.
std::filesystem::path log_folder(const TrainerConfig& config);
/// Opens a logger's file in it, creating the folder. None if the run has no folder, or nothing to do.
void open_log(std::optional<AppendedFile>& file, const FitInfo& info, const std::string& name);

/// Calls f(name, value) for all numbers of a step except the indices of step and epoch.
template <class F> void for_each_value(const StepLog& step, const F& f) {
  for (const auto& [name, value] : step.values) f(name, value);
  f("learning_rate", double{step.report.learning_rate});
  f("grad_norm", double{step.report.grad_norm});
  f("loss_scale", double{step.report.loss_scale});
  f("images_per_s", rounded_rate(step.images_per_s));
  f("data_wait_s", step.data_wait_s);
}

/// The same for an epoch.
template <class F> void for_each_value(const EpochReport& epoch, const F& f) {
  f("train_loss", epoch.train_loss);
  f("train_accuracy", epoch.train_accuracy);
  f("val_loss", epoch.val_loss);
  f("val_accuracy", epoch.val_accuracy);
  f("learning_rate", double{epoch.learning_rate});
  f("loss_scale", double{epoch.loss_scale});
  f("images_per_s", rounded_rate(epoch.images_per_s));
  for (const auto& [name, value] : epoch.others) f(name, value);
}

/// "applied", "skipped_overflow" or "skipped_outlier".
constexpr const char* name_of(StepResult result) {
  switch (result) {
    case StepResult::applied: return "applied";
    case StepResult::skipped_overflow: return "skipped_overflow";
    case StepResult::skipped_outlier: return "skipped_outlier";
  }
  return "?";
}

/// Appends a number in f32 precision, integers as such; `missing` if it is not finite.
inline void append_number(std::string& to, double value, const char* missing) {
  if (!(std::abs(value) <= std::numeric_limits<float>::max())) {  // also a NaN
    to += missing;
  } else if (value == std::floor(value) && std::abs(value) < 1e15) {
    fmt::format_to(std::back_inserter(to), "{}", static_cast<std::int64_t>(value));
  } else {
    fmt::format_to(std::back_inserter(to), "{}", static_cast<float>(value));
  }
}

}  // namespace athanor
