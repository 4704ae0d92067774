#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "trainer/task.h"
#include "trainer/task_loss.h"
#include "trainer/test_views.h"

namespace athanor {

/// The mean of each value over a data set, and its deviation; 1 for values that are all equal.
struct ValueScale {
  std::vector<double> mean, deviation;
};
/// Of the field "labels". Reads every label.
ValueScale scale_of_values(const Dataset& data);

/// Predicts numbers: mean squared, absolute or Huber error, averaged over images and values. The network
/// learns (value - mean) / deviation, so that learning rates do not depend on units; losses are of these.
/// Validation measures mae, rmse and r2 in the values' units (NumberErrors), exact over batches and ranks.
class Regression final : public Task {
 public:
  /// `model` maps [N, H, W, C] to [N, values] and must outlive this. Batches have a field "labels", f32
  /// [values]. `validated`: samples of the validation set, at most. Throws ArgumentError on a loss of other
  /// labels.
  Regression(nn::Module& model, const ValueScale& scale, std::int64_t validated, Device device,
             const TaskLoss& loss = {});

  Tensor training_step(const Batch& batch, Step& step) override;
  void validation_step(const Batch& batch, Step& step) override;
  std::optional<std::int64_t> captured_as(const BatchPosition&) const override { return 0; }
  void describe(ModelInfo& info, const Metrics& measured) const override;

  /// Validates by the mean outputs of views of each image.
  void validate_by(TestTimeAugmentation views) { views_ = std::move(views); }

 private:
  Tensor losses(const Tensor& outputs, const Tensor& targets) const;

  nn::Module& model_;
  ValueScale scale_;
  Tensor mean_, deviation_;  // [values] f64, on the device
  std::int64_t validated_;
  TaskLoss loss_;
  TestTimeAugmentation views_ = {};
};

}  // namespace athanor
