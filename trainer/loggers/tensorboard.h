#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/io/proto.h"
#include "tensor/tensor.h"
#include "trainer/callback.h"
#include "trainer/loggers/appended_file.h"

namespace athanor {

/// --logger tensorboard: an event file, events.out.tfevents.*, in the run's folder, which TensorBoard shows.
///
///     step/NAME               scalars of each logged step
///     NAME                    scalars of each epoch: train_loss, val_accuracy, ...
///     weights/PARAMETER       histograms, once per epoch, after its last step
///     gradients/PARAMETER     gradients, if this rank has them whole: not with ZeRO-1
///     pictures/NAME           images from validations (Step::images())
///
/// A resumed run continues its file: an incomplete last record of a killed process is cut off, and a marker
/// tells TensorBoard to discard the steps that are repeated. Source: event.proto, summary.proto.
class TensorBoardLog final : public Callback {
 public:
  void on_fit_begin(Trainer&, const FitInfo& info) override;
  void on_step_begin(Trainer& trainer, const StepInfo&) override;
  void on_step_result(Trainer&, const StepReport& report) override;
  void on_step_log(Trainer&, const StepLog& step) override;
  void on_validated(Trainer&, const EpochReport& report) override;
  void on_epoch_end(Trainer& trainer, const EpochReport& report) override;
  void on_picture(Trainer&, const Picture& picture) override;
  bool reads_weights() const override { return false; }

 private:
  void add_scalar(std::string_view folder, std::string_view name, double value);
  void add_histogram(const std::string& tag, const Tensor& values, double scale);
  void add_histograms(Trainer& trainer);
  void add_value(const ProtoMessage& value) { summary_.message(1, value); }
  /// Writes an event with everything added since the last one.
  void write(std::int64_t step);
  void begin_event(std::int64_t step);
  void frame_event();
  void end_event();

  std::optional<AppendedFile> file_;
  std::int64_t attempted_ = 0;        // steps
  std::optional<double> next_scale_;  // the loss scale of the next step
  double scale_ = 0;                  // in the last step; 0: none
  // Reused memory.
  ProtoMessage event_, summary_, value_, part_;
  std::string tag_, record_;
};

/// A histogram of the finite values: bins of equal width from minimum to maximum.
struct Histogram {
  static constexpr int kBins = 64;
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  std::int64_t count = 0;
  double ends[kBins] = {}, counts[kBins] = {};  ///< upper end and count of each bin
};
Histogram histogram_of(std::span<const float> values, double scale = 1);

}  // namespace athanor
