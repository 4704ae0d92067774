#pragma once

#include <filesystem>
#include <string>

#include "trainer/callback.h"
#include "trainer/loggers/appended_file.h"

namespace athanor {

/// The lines of an epoch and of the end; of a run in phases, with its `phase`.
std::string epoch_json(const EpochReport& report, const std::string& phase = {});
std::string end_json(const FitReport& report, const std::string& phase = {});

/// --metrics FILE: appends one JSON object per line, one for each logged step, each epoch and one at the end,
/// one for each note, and one where a run goes on from a checkpoint: steps and epochs behind that may be
/// there already, from before. A line is written in one piece, at once, so that a reader or a crash sees
/// whole lines. What was not measured is null.
class JsonLines final : public Callback {
 public:
  /// Throws IoError when the file cannot be written.
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
  std::string phase_ = {};  // of the run, where it has several
};

}  // namespace athanor
