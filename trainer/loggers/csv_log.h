#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/callback.h"
#include "trainer/loggers/appended_file.h"

namespace athanor {

/// --logger csv: metrics.csv in the run's folder, a row for each logged step, each validation within an
/// epoch, and each epoch. RFC 4180: lines end with CR LF, and all have the columns of the header.
///
/// The columns are fixed with the first row: those of every run, then NAME, train_NAME and val_NAME for names
/// that training steps have logged by then. Later names go to the last column, `others`, as
/// "val_psnr=22.1;val_iou=0.7". Values that were not measured are empty. A resumed run keeps the file's
/// columns and increments `session`: among rows of one step or epoch, the highest session counts.
class CsvLog final : public Callback {
 public:
  void on_fit_begin(Trainer&, const FitInfo& info) override;
  void on_step_log(Trainer&, const StepLog& step) override;
  void on_validated(Trainer&, const EpochReport& report) override;
  void on_epoch_end(Trainer&, const EpochReport& report) override;
  bool reads_weights() const override { return false; }

 private:
  void take_over();
  std::string header() const;
  void begin_columns(std::span<const NamedValue> others);
  template <class Report>
  void write(std::string_view event, std::int64_t step, std::string_view result, const Report& report,
             std::span<const NamedValue> others);
  void write_row(std::string_view event, std::string_view result);
  void write_others();

  struct Cell {
    std::string_view name;
    double value;
    bool written;  // has its own column
  };
  std::optional<AppendedFile> file_;
  std::vector<std::string> columns_;
  std::int64_t session_ = 0;
  std::string line_;
  std::vector<Cell> cells_;
};

}  // namespace athanor
