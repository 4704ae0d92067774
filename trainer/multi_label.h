#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "data/dataset.h"
#include "trainer/config.h"
#include "trainer/task.h"
#include "trainer/task_loss.h"
#include "trainer/test_views.h"

namespace athanor {

/// Factors of positives in bce, [classes] f32 on the CPU: balanced, images without the class / images with
/// it, 1 for a class without images; else as named, and 1 for other classes. Undefined without weights.
/// Throws ArgumentError on another name.
Tensor positive_weights(const ClassWeights& how, const Dataset& data);

/// Classes of which an image may have any number: a sigmoid each, binary cross entropy or focal loss,
/// averaged over images and classes. Validation measures mAP, F1 and thresholds (SeveralLabels), exact over
/// batches and ranks. Training losses are smoothed and weighted, validation losses are not.
class MultiLabel final : public Task {
 public:
  struct Options {
    TaskLoss loss = {};
    double smoothing = 0;    ///< the share of each target that becomes 1/2
    Tensor pos_weight = {};  ///< [classes] f32 on the model's device, with bce; undefined: 1
  };
  /// `model` maps [N, H, W, C] to logits [N, classes] and must outlive this. Batches have a field "labels",
  /// f32 [classes]. `validated`: samples of the validation set, at most. Throws ArgumentError on a loss of
  /// other labels.
  MultiLabel(nn::Module& model, std::int64_t classes, std::int64_t validated, const Options& options);

  Tensor training_step(const Batch& batch, Step& step) override;
  void validation_step(const Batch& batch, Step& step) override;
  std::optional<std::int64_t> captured_as(const BatchPosition&) const override { return 0; }
  bool mixes_labels() const override { return true; }
  void describe(ModelInfo& info, const Metrics& measured) const override;

  /// Validates by the mean outputs of views of each image.
  void validate_by(TestTimeAugmentation views) { views_ = std::move(views); }

 private:
  nn::Module& model_;
  std::int64_t classes_, validated_;
  Options options_;
  TestTimeAugmentation views_ = {};
};

}  // namespace athanor
