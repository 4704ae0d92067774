#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/callback.h"
#include "trainer/loggers/appended_file.h"

namespace athanor {

/// --logger csv: metrics.csv in the run's folder, a row for each logged step, each validation within an
/// epoch, and each epoch. RFC 4180: lines end with CR LF, and all have the columns that the first one names.
///
/// They are fixed when the first row is written: those that every run has, and then, of what training steps
/// have logged by then, NAME, train_NAME and val_NAME. What comes later is in the last column, `others`, as
/// "val_psnr=22.1;val_iou=0.7". What was not measured is empty. A process that goes on with the file uses its
/// columns, and has the next number in `session`: of rows of one step or epoch, that with the highest counts.
class CsvLog final : public Callback {
 public:
  void on_fit_begin(Trainer&, const FitInfo& info) override;
  void on_step_log(Trainer&, const StepLog& step) override;
  void on_validated(Trainer&, const EpochReport& report) override;
  void on_epoch_end(Trainer&, const EpochReport& report) override;
  bool reads_weights() const override { return false; }

 private:
  void take_over();
  void begin_columns(const std::vector<std::string>& names);
  void begin_row(std::string_view event, std::int64_t step, std::int64_t epoch, std::string_view result);
  void add(std::string_view name, double value) { cells_.push_back({name, value, false}); }
  void write_epoch(std::string_view event, const EpochReport& report);
  void write_row();
  void write_others();

  struct Cell {
    std::string_view name;
    double value;
    bool written;  // in a column of its own
  };
  std::optional<AppendedFile> file_;
  std::vector<std::string> columns_;
  std::int64_t session_ = 0;
  std::string line_;
  std::string_view event_, result_;
  std::vector<Cell> cells_;
};

}  // namespace athanor
