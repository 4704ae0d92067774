#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/callback.h"
#include "trainer/inference/evaluation.h"
#include "trainer/report/detail/record.h"

namespace athanor::report {

/// Writes report.html in the folder of a run or phase: periodically while it trains, and completely at the
/// end, however it ends. A resumed run continues the curves of the existing page. If the page cannot be
/// written, that is reported once, and the run continues. Only for rank 0.
class ReportPage final : public Callback {
 public:
  using Note = std::function<void(const std::string&)>;
  ReportPage(std::filesystem::path run_dir, Note on_note)
      : run_dir_(std::move(run_dir)), on_note_(std::move(on_note)) {}

  /// Adds a validation batch: losses [N], logits [N, C] on the device, without waiting for it.
  void validated(const Tensor& losses, const Tensor& logits, const Batch& batch, const Dataset& data);

  void on_fit_begin(Trainer&, const FitInfo& info) override;
  void on_step_result(Trainer&, const StepReport& report) override;
  void on_step_log(Trainer&, const StepLog& log) override;
  void on_step_end(Trainer&, const StepInfo& step) override;
  void on_validation_begin(Trainer&) override;
  void on_validation_end(Trainer&, const Metrics&) override;
  void on_validated(Trainer&, const EpochReport& report) override;
  void on_epoch_end(Trainer&, const EpochReport& report) override;
  void on_note(Trainer&, const std::string& note) override;
  void on_exception(Trainer&, const std::exception& error) override;
  void on_fit_end(Trainer&, const FitReport& report) override;
  bool reads_weights() const override { return false; }

 private:
  struct Logits {
    Tensor losses, logits, labels, samples;
  };
  using Clock = std::chrono::steady_clock;

  void take_logits();
  void take_totals(const Trainer& trainer, double wall_s);
  void write();
  std::filesystem::path folder() const { return run_dir_ / phase_; }

  std::filesystem::path run_dir_;
  Note on_note_;
  Record record_;
  std::string phase_ = {};
  std::int64_t val_samples_ = 0;
  bool validates_ = false, validating_ = false, warned_ = false, first_step_ = true;
  double data_s_ = 0, epoch_s_ = 0;  // at the end of the previous step
  std::int64_t epoch_ = 0, samples_ = 0;
  std::unique_ptr<Evaluation> evaluation_;
  std::vector<Logits> pending_;  // on a device, until the validation ends
  const Dataset* data_ = nullptr;
  Clock::time_point written_ = {};
};

}  // namespace athanor::report
