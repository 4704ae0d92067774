#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "trainer/callback.h"
#include "trainer/detail/terminal.h"

namespace athanor {

/// Shows the user how training proceeds: the configuration, a table with a row per epoch, the result. On a
/// terminal, also a live line. In a pipe or file nothing is overwritten.
class Progress final : public Callback {
 public:
  /// `out`: null shows nothing. `live`: whether it is a terminal, whose lines can be overwritten; detected by
  /// default. `columns`: its width; 0: query the terminal, repeatedly.
  explicit Progress(std::FILE* out = stdout) : out_(out), line_(out), columns_(0) {}
  Progress(std::FILE* out, bool live, int columns = 0) : out_(out), line_(out, live), columns_(columns) {}

  void on_fit_begin(Trainer&, const FitInfo& info) override;
  void on_step_end(Trainer&, const StepInfo& step) override;
  void on_validated(Trainer&, const EpochReport& report) override;
  void on_epoch_end(Trainer&, const EpochReport& report) override;
  void on_note(Trainer&, const std::string& note) override;
  void on_answer(Trainer&, const AnswerText& text) override;
  void on_fit_end(Trainer&, const FitReport& report) override;
  void on_exception(Trainer&, const std::exception& error) override;
  bool reads_weights() const override { return false; }
  std::string state_name() const override { return "progress"; }
  StateDict state_dict(const Trainer&) const override;
  void load_state_dict(const Trainer&, const StateDict& state) override;

 private:
  int columns() const;
  void flush() const;
  /// Prints a line of text, wrapped on a terminal.
  void say(const std::string& text, int indent = 0);
  void begin_table();
  /// A row of the table of epochs, whose cells are those of all columns.
  std::string row(const std::vector<std::string>& cells) const;
  std::string result_of(const FitReport& report) const;
  void say_product(const TrainerConfig& config, const FitReport& report);

  std::FILE* out_;
  terminal::LiveLine line_;
  int columns_;
  bool table_begun_ = false, idle_ = false, classifies_ = true;
  std::int64_t steps_per_epoch_ = 0, total_steps_ = 0, done_before_ = 0;
  double best_accuracy_ = -1;
  double last_wall_s_ = 0;
  std::vector<std::string> class_names_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace athanor
