#include "trainer/loggers/csv_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "tensor/error.h"
#include "trainer/config.h"
#include "trainer/loggers/loggers.h"

namespace athanor {
namespace {

constexpr std::array<std::string_view, 14> kColumns{
    "session",        "event",    "step",         "epoch",         "train_loss",
    "train_accuracy", "val_loss", "val_accuracy", "learning_rate", "grad_norm",
    "loss_scale",     "result",   "images_per_s", "data_wait_s"};
constexpr std::string_view kOthers = "others", kEnd = "\r\n";

/// A line's fields: names and numbers written here have neither commas nor quotes.
std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    fields.emplace_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

}  // namespace

void CsvLog::on_fit_begin(Trainer&, const FitInfo& info) {
  file_.reset();
  columns_.clear();
  session_ = 1;
  if (info.config.run_dir.empty() || !info.nothing_to_do.empty()) return;
  std::error_code ignored;  // opening the file reports any problem
  std::filesystem::create_directories(log_folder(info.config), ignored);
  file_.emplace("--logger", log_folder(info.config) / "metrics.csv");
  take_over();
}

// Continues the file of an earlier process.
void CsvLog::take_over() {
  std::string all = file_->content();
  const std::string begin = fmt::format("{},", fmt::join(kColumns, ","));
  const std::size_t shared = std::min(all.size(), begin.size());  // the header may be incomplete
  const bool ours = all.compare(0, shared, begin, 0, shared) == 0;
  if (!ours)
    detail::fail<IoError>("--logger: {} must have the columns of a run's metrics, but begins with '{}'",
                          file_->path().string(),
                          all.substr(0, std::min<std::size_t>(all.find_first_of(",\r\n"), 40)));
  const std::size_t whole = all.rfind('\n') + 1;                   // 0 if there is none
  if (whole < all.size()) file_->remove_last(all.size() - whole);  // process or machine was stopped
  all.resize(whole);
  if (all.empty()) return;
  columns_ = split(std::string_view(all).substr(0, std::min(all.find(kEnd), all.size())));
  file_->begin_with(header());
  const std::size_t last = all.rfind('\n', all.size() - 2) + 1;
  std::from_chars(all.data() + last, all.data() + all.size(), session_);
  ++session_;
}

void CsvLog::begin_columns(const std::vector<std::string>& names) {
  columns_.assign(kColumns.begin(), kColumns.end());
  const auto has = [&](const std::string& name) {
    return std::find(columns_.begin(), columns_.end(), name) != columns_.end();
  };
  for (const std::string& name : names) {
    const std::string plain = name.substr(name.find('_') + 1);
    for (const char* prefix : {"train_", "val_"})
      if (!has(prefix + plain)) columns_.push_back(prefix + plain);
  }
  columns_.emplace_back(kOthers);
  file_->append(header());
  file_->begin_with(header());
}

std::string CsvLog::header() const {
  return fmt::format("{}{}", fmt::join(columns_, ","), kEnd);
}

void CsvLog::begin_row(std::string_view event, std::int64_t step, std::int64_t epoch,
                       std::string_view result) {
  event_ = event;
  result_ = result;
  cells_.clear();
  add("session", static_cast<double>(session_));
  add("step", static_cast<double>(step));
  add("epoch", static_cast<double>(epoch));
}

void CsvLog::write_row() {
  line_.clear();
  for (const std::string& column : columns_) {
    if (&column != &columns_.front()) line_ += ',';
    if (column == "event") line_ += event_;
    if (column == "result") line_ += result_;
    if (column == kOthers) write_others();
    const auto cell =
        std::find_if(cells_.begin(), cells_.end(), [&](const Cell& one) { return one.name == column; });
    if (cell == cells_.end()) continue;
    append_number(line_, cell->value, "");
    cell->written = true;
  }
  line_ += kEnd;
  file_->append(line_);
}

void CsvLog::write_others() {
  bool first = true;
  for (const Cell& cell : cells_) {
    if (cell.written || !std::isfinite(cell.value)) continue;
    if (!std::exchange(first, false)) line_ += ';';
    line_ += cell.name;
    line_ += '=';
    append_number(line_, cell.value, "");
  }
}

void CsvLog::on_step_log(Trainer&, const StepLog& step) {
  if (!file_) return;
  if (columns_.empty()) {
    std::vector<std::string> names;
    for (const NamedValue& one : step.values) names.push_back(one.name);
    begin_columns(names);
  }
  begin_row("step", step.report.attempted, step.epoch, name_of(step.report.result));
  for_each_value(step, [this](std::string_view name, double value) { add(name, value); });
  write_row();
}

void CsvLog::on_validated(Trainer&, const EpochReport& report) {
  if (!report.whole) write_epoch("validation", report);  // else on_epoch_end() writes it
}

void CsvLog::on_epoch_end(Trainer&, const EpochReport& report) {
  write_epoch("epoch", report);
}

void CsvLog::write_epoch(std::string_view event, const EpochReport& report) {
  if (!file_) return;
  if (columns_.empty()) {
    std::vector<std::string> names;
    for (const NamedValue& one : report.others) names.push_back(one.name);
    begin_columns(names);
  }
  begin_row(event, report.steps.attempted(), report.epoch, "");
  for_each_value(report, [this](std::string_view name, double value) { add(name, value); });
  write_row();
}

}  // namespace athanor
