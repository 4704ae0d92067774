#include "trainer/report/detail/report_page.h"

#include <algorithm>
#include <fstream>
#include <system_error>

#include <fmt/chrono.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "autograd/shape.h"
#include "kernels/implementations.h"
#include "tensor/allocator.h"
#include "tensor/base/cores.h"
#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"
#include "trainer/loggers/json_lines.h"
#include "trainer/readable.h"
#include "trainer/report/detail/mistakes.h"
#include "trainer/report/detail/page.h"
#include "trainer/trainer.h"

namespace athanor::report {
namespace {

constexpr std::chrono::seconds kAfterEpoch{5}, kWithinEpoch{30};  // minimum times between two pages
constexpr std::int64_t kLogits = 16'000'000, kWorst = 16;

std::string now() {
  const auto time = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(time));
}

std::string processor(const utsname& system) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name") && line.find(": ") != line.npos)
      return line.substr(line.find(": ") + 2);
  return system.machine;  // Linux on ARM gives no name
}

Json facts_of(const FitInfo& info) {
  const TrainerConfig& config = info.config;
  utsname system{};
  ::uname(&system);
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const ImageSpec& spec = info.spec;
  return {
      {"Program", config.program},
      {"Network", config.model},
      {"Parameters",
       with_commas(info.parameters) +
           (info.frozen_parameters > 0 ? fmt::format(", and {} frozen", with_commas(info.frozen_parameters))
                                       : "")},
      {"Data", fmt::format("{} images of {}x{}x{} for training, {} for validation{}",
                           with_commas(info.train_samples), spec.height, spec.width, spec.channels,
                           info.val_samples > 0 ? with_commas(info.val_samples) : "none",
                           info.classifies ? fmt::format(", {} classes", spec.classes) : "")},
      {"Loading", info.data_source},
      {"Steps", fmt::format("{} in all, {} per epoch, batch size {}{}", with_commas(info.total_steps),
                            with_commas(info.steps_per_epoch), config.batch_size,
                            config.accumulate > 1 ? fmt::format(" x {}", config.accumulate) : "")},
      {"Precision", std::string(name_of(config.precision))},
      {"Device",
       config.device.str() + (config.device_note.empty() ? "" : fmt::format(" ({})", config.device_note))},
      {"Strategy", info.strategy},
      {"Processor", fmt::format("{}, {} cores, {} threads", processor(system), usable_cores(), info.threads)},
      {"Kernels", cpu_implementations()},
      {"Memory", byte_size(memory)},
      {"System", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
      {"Compiler", __VERSION__}};
}

}  // namespace

void ReportPage::on_fit_begin(Trainer&, const FitInfo& info) {
  phase_ = info.config.phase;
  record_ = {};
  if (!info.resumed_from.empty()) {
    try {
      for (Record& run : read_runs(run_dir_))
        if (run.phase == phase_) record_ = std::move(run);
      record_.drop_after(static_cast<double>(info.attempted));
    } catch (const Error&) {  // the first part of the run had no page
    }
  }
  std::ifstream in(run_dir_ / "config.json");
  record_.config = Json::parse(in, nullptr, false);
  if (record_.config.is_discarded()) record_.config = {};
  record_.name = run_dir_.string() + (phase_.empty() ? "" : ", " + phase_);
  record_.facts = facts_of(info);
  val_samples_ = info.val_samples;
  validates_ = info.classifies && val_samples_ * info.spec.classes <= kLogits;
  first_step_ = true;
  written_ = Clock::now();
}

void ReportPage::on_step_result(Trainer&, const StepReport& report) {
  const auto step = static_cast<double>(report.attempted);
  Series& skipped = record_.steps["skipped_steps"];
  skipped.add(step, skipped.last().y + (report.result != StepResult::applied));
  record_.steps["grad_norm"].add(step, report.grad_norm);
  record_.steps["learning_rate"].add(step, report.learning_rate);
  record_.steps["loss_scale"].add(step, report.loss_scale);
}

void ReportPage::on_step_log(Trainer&, const StepLog& log) {
  for (const auto& [name, value] : log.values)
    record_.steps[name].add(static_cast<double>(log.report.attempted), value);
}

void ReportPage::on_step_end(Trainer& trainer, const StepInfo& step) {
  if (step.epoch != epoch_) epoch_ = step.epoch, samples_ = 0, epoch_s_ = 0;
  const double data_s = trainer.times().data, seconds = step.epoch_s - epoch_s_;
  const auto at = static_cast<double>(step.attempted);
  if (!std::exchange(first_step_, false)) {  // which warms up, and follows another process
    record_.steps["images_per_s"].add(at,
                                      static_cast<double>(step.samples - samples_) / std::max(seconds, 1e-9));
    record_.steps["data_wait_s"].add(at, data_s - data_s_);
  }
  data_s_ = data_s;
  epoch_s_ = step.epoch_s;
  samples_ = step.samples;
  if (Clock::now() - written_ > kWithinEpoch) write();
}

void ReportPage::validated(const Tensor& losses, const Tensor& logits, const Batch& batch,
                           const Dataset& data) {
  if (!validating_) return;
  data_ = &data;
  const bool waits = !logits.device().is_cpu();
  const auto owned = [&](const Tensor& field) { return waits ? clone(field) : field; };  // reused by loader
  pending_.push_back(
      {owned(losses.detach()), owned(logits.detach()), owned(batch.labels), owned(batch.samples)});
  if (!waits) take_logits();
}

// A page must not end a run: labels that are no classes, for example, are refused elsewhere.
void ReportPage::take_logits() {
  const AllowSync allow;
  try {
    for (const Logits& one : pending_) {
      if (!evaluation_)
        evaluation_ = std::make_unique<Evaluation>(one.logits.dim(1), data_->class_names(), 1, kWorst);
      evaluation_->add(one.losses, one.logits, one.labels, one.samples);
    }
  } catch (const Error&) {
    validating_ = false;
    evaluation_.reset();
  }
  pending_.clear();
}

void ReportPage::on_validation_begin(Trainer&) {
  pending_.clear();
  evaluation_.reset();
  validating_ = validates_;
}

void ReportPage::on_validation_end(Trainer&, const Metrics&) {
  take_logits();
  validating_ = false;
  if (!evaluation_) return;
  if (evaluation_->images() > 0) record_.evaluation = json_of(*evaluation_, *data_, val_samples_);
  evaluation_.reset();
}

void ReportPage::take_totals(const Trainer& trainer, double wall_s) {
  const Times& times = trainer.times();
  record_.times = Json::object();
  for (const TimesPart& part : kTimesParts) record_.times[part.name] = times.*part.seconds;
  record_.times["other"] = std::max(wall_s - times.step() - times.validation - times.saving, 0.0);
  record_.memory = Json::object();
  for (const auto& [tag, bytes] : allocator_of(trainer.config().device).stats().peak_by_tag)
    record_.memory[tag] = bytes;
}

void ReportPage::on_validated(Trainer&, const EpochReport& report) {
  if (report.whole) return;  // on_epoch_end() handles it
  Json measured{{"val_loss", report.val_loss}, {"val_accuracy", report.val_accuracy}};
  for (const auto& [name, value] : report.others) measured[name] = value;
  add_validation(record_, static_cast<double>(report.steps.attempted()), measured, true);
}

void ReportPage::on_epoch_end(Trainer& trainer, const EpochReport& report) {
  record_.epochs.push_back(Json::parse(epoch_json(report)));
  for (const std::string& note : report.notes) on_note(trainer, note);
  add_validation(record_, attempted(record_.epochs.back()), record_.epochs.back(), false);
  take_totals(trainer, report.wall_s);
  if (Clock::now() - written_ > kAfterEpoch || record_.epochs.size() == 1) write();
}

void ReportPage::on_note(Trainer&, const std::string& note) {
  if (record_.notes.size() < 50) record_.notes.push_back(note);
}

void ReportPage::on_exception(Trainer&, const std::exception& error) {
  record_.ended = fmt::format("ended by an error: {}", error.what());
  write();
}

void ReportPage::on_fit_end(Trainer& trainer, const FitReport& report) {
  record_.end = Json::parse(end_json(report));
  if (report.signal != 0)
    record_.ended = fmt::format("stopped by SIG{}", ::sigabbrev_np(report.signal));
  else if (const std::string why = trainer.why_stopped(); !why.empty())
    record_.ended = (report.stopped_by == StoppedBy::diverged ? "diverged: " : "stopped: ") + why;
  take_totals(trainer, report.wall_s);
  write();
}

// A full disk must not end a training.
void ReportPage::write() {
  written_ = Clock::now();
  record_.written = now();
  try {
    const std::string page = page_of(record_);
    std::error_code ignored;  // writing the file reports any problem with the folder
    std::filesystem::create_directories(folder(), ignored);
    write_atomically(folder() / "report.html", page);
  } catch (const IoError& error) {
    if (!std::exchange(warned_, true))
      on_note_(fmt::format("warning: the report was not written: {}", error.what()));
  }
}

}  // namespace athanor::report
