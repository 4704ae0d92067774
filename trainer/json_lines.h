#pragma once

#include <filesystem>
#include <string>

#include "trainer/callback.h"

namespace athanor {

/// The lines of an epoch and of the end; of a run in phases, with its `phase`.
std::string epoch_json(const EpochReport& report, const std::string& phase = {});
std::string end_json(const FitReport& report, const std::string& phase = {});

/// --metrics FILE: appends one JSON object per line, one for each epoch and one at the end, one for each
/// note, and one where a run goes on from a checkpoint: epochs after it may be there already, from before. A
/// line is written in one piece, at once, so that a reader or a crash sees whole lines. What was not measured
/// is null.
class JsonLines final : public Callback {
 public:
  /// Throws IoError when the file cannot be written.
  explicit JsonLines(std::filesystem::path path);
  ~JsonLines() override;

  void on_fit_begin(Trainer&, const FitInfo& info) override;
  void on_validated(Trainer& trainer, const EpochReport& report) override;
  void on_epoch_end(Trainer&, const EpochReport& report) override;
  void on_note(Trainer&, const std::string& note) override;
  void on_exception(Trainer&, const std::exception& error) override;
  void on_fit_end(Trainer&, const FitReport& report) override;
  bool reads_weights() const override { return false; }

 private:
  void append(std::string line);

  std::filesystem::path path_;
  int file_ = -1;
  std::string phase_ = {};  // of the run, where it has several
};

}  // namespace athanor
