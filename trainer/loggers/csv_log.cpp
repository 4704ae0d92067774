#include "trainer/loggers/csv_log.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tensor/base/error.h"
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
  columns_.clear();
  session_ = 1;
  open_log(file_, info, "metrics.csv");
  if (file_) take_over();
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

void CsvLog::begin_columns(std::span<const NamedValue> others) {
  columns_.assign(kColumns.begin(), kColumns.end());
  for (const NamedValue& one : others) {
    const std::string plain = one.name.substr(one.name.find('_') + 1);
    for (const char* prefix : {"train_", "val_"}) {
      if (std::find(columns_.begin(), columns_.end(), prefix + plain) == columns_.end())
        columns_.push_back(prefix + plain);
    }
  }
  columns_.emplace_back(kOthers);
  file_->append(header());
  file_->begin_with(header());
}

std::string CsvLog::header() const {
  return fmt::format("{}{}", fmt::join(columns_, ","), kEnd);
}

void CsvLog::write_row(std::string_view event, std::string_view result) {
  line_.clear();
  for (const std::string& column : columns_) {
    if (&column != &columns_.front()) line_ += ',';
    if (column == "event") line_ += event;
    if (column == "result") line_ += result;
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

template <class Report>
void CsvLog::write(std::string_view event, std::int64_t step, std::string_view result, const Report& report,
                   std::span<const NamedValue> others) {
  if (!file_) return;
  if (columns_.empty()) begin_columns(others);
  cells_.clear();
  const auto add = [this](std::string_view name, double value) { cells_.push_back({name, value, false}); };
  add("session", static_cast<double>(session_));
  add("step", static_cast<double>(step));
  add("epoch", static_cast<double>(report.epoch));
  for_each_value(report, add);
  write_row(event, result);
}

void CsvLog::on_step_log(Trainer&, const StepLog& step) {
  write("step", step.report.attempted, name_of(step.report.result), step, step.values);
}

void CsvLog::on_validated(Trainer&, const EpochReport& report) {
  if (!report.whole) write("validation", report.steps.attempted(), "", report, report.others);
}

void CsvLog::on_epoch_end(Trainer&, const EpochReport& report) {
  write("epoch", report.steps.attempted(), "", report, report.others);
}

}  // namespace athanor
