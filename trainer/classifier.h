#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "autograd/loss.h"
#include "data/dataset.h"
#include "trainer/config.h"
#include "trainer/task.h"
#include "trainer/task_loss.h"
#include "trainer/test_views.h"

namespace athanor {

/// Class weights that compensate for class sizes: [classes] f32 on the CPU, images / (number of nonempty
/// classes * images of the class), so that the mean over all images is 1; 0 for a class without images. Reads
/// every label.
Tensor balanced_weights(const Dataset& data);

/// The factors of training losses that --class-weights asks for, [classes] f32 on the CPU; undefined: none.
/// Classes without names are called 0, 1, ... Throws ArgumentError on a name that is no class.
Tensor class_weights(const ClassWeights& how, const Dataset& data);

/// Image classification: cross entropy and accuracy. Training losses are smoothed and weighted, validation
/// losses are not. bce and focal train each class as a question of its own, averaged over classes; validation
/// then measures cross entropy, too. For mixed images (data/mix.h) the training loss weighs both labels by
/// their shares, and a prediction is right if it is the label with the larger share.
class Classifier final : public Task {
 public:
  /// `model` maps [N, H, W, C] to logits [N, classes] and must outlive this. If defined, class_weights
  /// [classes] f32 on the model's device multiply the training loss of each image. The mean is still divided
  /// by the number of images, so that it does not depend on the number of ranks. Throws ArgumentError on a
  /// loss of other labels.
  Classifier(nn::Module& model, std::int64_t classes, double smoothing = 0, Tensor class_weights = {},
             const TaskLoss& loss = {});

  Tensor training_step(const Batch& batch, Step& step) override;
  void validation_step(const Batch& batch, Step& step) override;
  std::optional<std::int64_t> captured_as(const BatchPosition&) const override { return 0; }
  void validated(const Batch& batch) override;
  bool classifies() const override { return true; }
  bool mixes_labels() const override { return true; }

  /// Validates by the mean logits of views of each image.
  void validate_by(TestTimeAugmentation views) { views_ = std::move(views); }

  /// Receives the results of each validation step: losses [N] f32, logits [N, C], and the batch as it was
  /// loaded. All are valid during the call.
  using Watch = std::function<void(const Tensor& losses, const Tensor& logits, const Batch& batch)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

 private:
  CrossEntropy training_loss(const Tensor& logits, const Tensor& labels, const Batch& batch) const;
  Tensor losses_of_classes(const Tensor& logits, const Tensor& labels) const;

  nn::Module& model_;
  std::int64_t classes_;
  double smoothing_;
  Tensor class_weights_;
  TaskLoss loss_;
  TestTimeAugmentation views_ = {};
  Watch watch_ = {};
  Tensor losses_, logits_;  // of the last validation step, for watch_
};

}  // namespace athanor
