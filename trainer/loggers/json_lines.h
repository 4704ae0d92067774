#pragma once

#include <filesystem>
#include <string>

#include "trainer/callback.h"
#include "trainer/loggers/appended_file.h"

namespace athanor {

/// The lines of an epoch and of the end, with their `phase` in a run with phases.
std::string epoch_json(const EpochReport& report, const std::string& phase = {});
std::string end_json(const FitReport& report, const std::string& phase = {});

/// --metrics FILE: appends one JSON object per line: for each logged step, each epoch, each note, the end,
/// and each resume from a checkpoint, after which steps and epochs may be repeated. A line is written at
/// once, so that a reader or a crash sees whole lines. Values that were not measured are null.
class JsonLines final : public Callback {
 public:
  /// Throws IoError if the file cannot be written.
  explicit JsonLines(std::filesystem::path path);

  void on_fit_begin(Trainer&, const FitInfo& info) override;
  void on_step_log(Trainer&, const StepLog& step) override;
  void on_validated(Trainer& trainer, const EpochReport& report) override;
  void on_epoch_end(Trainer&, const EpochReport& report) override;
  void on_note(Trainer&, const std::string& note) override;
  void on_exception(Trainer&, const std::exception& error) override;
  void on_fit_end(Trainer&, const FitReport& report) override;
  bool reads_weights() const override { return false; }

 private:
  AppendedFile file_;
  std::string line_ = {};   // of a step
  std::string phase_ = {};  // of the run, if it has several
};

}  // namespace athanor
