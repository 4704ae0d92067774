#include "trainer/loggers/json_lines.h"

#include <cmath>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/loggers/loggers.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string hex(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::string line_of(const std::string& phase, Json line) {
  if (!phase.empty()) line["phase"] = phase;
  return text_of(line) + '\n';
}

/// What cuDNN and cuBLASLt did.
Json json_of(const VendorStats& stats) {
  return {{"calls", stats.calls},
          {"plans_made", stats.plans_made},
          {"tuned", stats.tuned},
          {"tuning_s", number(stats.tuning_s)},
          {"by_handle", stats.by_handle},
          {"by_text", stats.by_text},
          {"plans_loaded", stats.plans_loaded},
          {"disk_misses", stats.disk_misses},
          {"disk_rejected", stats.disk_rejected},
          {"disk_outdated", stats.disk_outdated},
          {"refused", stats.refused},
          {"fallbacks", stats.fallbacks},
          {"summary", describe(stats)}};
}

/// Adds a task's values besides loss and accuracy, which have their own places.
void add(Json& line, const std::vector<NamedValue>& others) {
  for (const auto& [name, value] : others) line[name] = number(value);
}

}  // namespace

JsonLines::JsonLines(std::filesystem::path path) : file_("--metrics", std::move(path)) {
  const std::string begun = file_.unfinished_line();
  constexpr std::string_view kBegin = "{\"event\":";
  const bool ours = begun.starts_with(kBegin) || (!begun.empty() && kBegin.starts_with(begun));
  if (ours && !Json::accept(begun)) {
    file_.remove_last(begun.size());  // of a killed process
  } else if (!begun.empty()) {
    file_.append("\n");  // after foreign content
  }
}

void JsonLines::on_fit_begin(Trainer&, const FitInfo& info) {
  phase_ = info.config.phase;
  if (!info.unused.empty()) {
    Json all = Json::array();
    for (const Unused& one : info.unused) {
      std::vector<std::string> names;
      for (const std::string& name : one.names) names.push_back(printable(name));
      all.push_back({{"cause", one.cause}, {"count", one.count}, {"names", names}});
    }
    file_.append(line_of(phase_, Json{{"event", "unused_data"}, {"unused", all}}));
  }
  if (info.resumed_from.empty()) return;
  file_.append(line_of(phase_, Json{{"event", "resume"},
                                    {"attempted_steps", info.attempted},
                                    {"checkpoint", info.resumed_from.string()}}));
}

// Calls no operator new once the line has its memory, because no name needs escaping.
void JsonLines::on_step_log(Trainer&, const StepLog& step) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), R"({{"event":"step","step":{},"epoch":{},"result":"{}")",
                 step.report.attempted, step.epoch, name_of(step.report.result));
  for_each_value(step, [this](std::string_view name, double value) {
    fmt::format_to(std::back_inserter(line_), R"(,"{}":)", name);
    append_number(line_, value, "null");
  });
  if (!phase_.empty()) fmt::format_to(std::back_inserter(line_), R"(,"phase":"{}")", phase_);
  line_ += "}\n";
  file_.append(line_);
}

void JsonLines::on_validated(Trainer&, const EpochReport& report) {
  if (report.whole) return;  // on_epoch_end() writes it
  Json line{{"event", "validation"},
            {"epoch", report.epoch},
            {"step", report.steps.attempted()},
            {"train_loss", number(report.train_loss)},
            {"train_accuracy", number(report.train_accuracy)},
            {"val_loss", number(report.val_loss)},
            {"val_accuracy", number(report.val_accuracy)},
            {"learning_rate", number(report.learning_rate)}};
  add(line, report.others);
  file_.append(line_of(phase_, std::move(line)));
}

std::string epoch_json(const EpochReport& report, const std::string& phase) {
  const auto seconds = [](double value) { return number(std::round(value * 1e6) / 1e6); };
  Json seconds_of;
  for (const TimesPart& part : kTimesParts) {
    const bool of_a_step = part.seconds != &Times::validation && part.seconds != &Times::saving;
    if (of_a_step) seconds_of[part.name] = seconds(report.times.*part.seconds);
  }
  seconds_of["other"] = seconds(report.other_s);
  if (report.times.tuning > 0) seconds_of["tuning"] = seconds(report.times.tuning);
  Json line{{"event", "epoch"},
            {"epoch", report.epoch},
            {"train_loss", number(report.train_loss)},
            {"train_accuracy", number(report.train_accuracy)},
            {"val_loss", number(report.val_loss)},
            {"val_accuracy", number(report.val_accuracy)},
            {"images_per_s", number(rounded_rate(report.images_per_s))},
            {"wall_s", seconds(report.wall_s)},
            {"learning_rate", number(report.learning_rate)},
            {"loss_scale", number(report.loss_scale)},
            {"applied_steps", report.steps.applied},
            {"skipped_steps", report.steps.skipped()},
            {"weights_hash", hex(report.weights_hash)},
            {"bound_by", report.bottleneck.bound_by},
            {"verdict", report.bottleneck.line},
            {"times_s", seconds_of},
            {"workers", report.loader.workers},
            {"workers_busy", seconds(report.loader.busy)},
            {"bad_samples", report.loader.skipped}};
  add(line, report.others);
  return line_of(phase, std::move(line));
}

void JsonLines::on_epoch_end(Trainer& trainer, const EpochReport& report) {
  file_.append(epoch_json(report, phase_));
  for (const std::string& note : report.notes) on_note(trainer, note);
}

void JsonLines::on_note(Trainer&, const std::string& note) {
  file_.append(line_of(phase_, Json{{"event", "note"}, {"text", note}}));
}

void JsonLines::on_exception(Trainer&, const std::exception& error) {
  file_.append(line_of(phase_, Json{{"event", "error"}, {"text", error.what()}}));
}

std::string end_json(const FitReport& report, const std::string& phase) {
  Json line{{"event", "end"},
            {"test_accuracy", number(report.test_accuracy)},
            {"test_loss", number(report.test_loss)},
            {"wall_s", number(report.wall_s)},
            {"images_per_s", number(rounded_rate(report.images_per_s))},
            {"epochs", report.epochs},
            {"applied_steps", report.steps.applied},
            {"skipped_steps", report.steps.skipped()},
            {"host_syncs", report.host_syncs},
            {"peak_bytes", report.peak_bytes},
            {"weights_hash", hex(report.weights_hash)},
            {"strategy", std::string(name_of(report.strategy))},
            {"ranks", report.world_size},
            {"stopped_by", std::string(name_of(report.stopped_by))}};
  if (report.vendor.any()) line["vendor"] = json_of(report.vendor);
  add(line, report.others);
  return line_of(phase, std::move(line));
}

void JsonLines::on_fit_end(Trainer&, const FitReport& report) {
  file_.append(end_json(report, phase_));
}

}  // namespace athanor
