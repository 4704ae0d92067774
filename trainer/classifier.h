#pragma once

#include <functional>
#include <utility>

#include "autograd/loss.h"
#include "data/dataset.h"
#include "trainer/task.h"

namespace athanor {

/// Weights that make the classes of `data` equal, whatever their sizes: [classes] f32 on the CPU, of each
/// class images / (classes that have any * images of the class), so that the mean over all images is 1; 0 of
/// a class without images. Asks for every label.
Tensor balanced_weights(const Dataset& data);

/// Images to classes: cross entropy and accuracy. Training losses are smoothed and weighted, validated ones
/// are not. Of mixed images (data/mix.h) the training loss is that of both labels, by their shares, and right
/// is who finds the label of the larger share.
class Classifier final : public Task {
 public:
  /// `model` takes [N, H, W, C] to logits [N, classes], and must outlive this. The training loss of an image
  /// is multiplied by the weight of its class, class_weights [classes] f32 on the model's device, where there
  /// are any; the mean is still divided by the number of images, so that it is the same on any number of
  /// ranks.
  Classifier(nn::Module& model, std::int64_t classes, double smoothing = 0, Tensor class_weights = {});

  Tensor training_step(const Batch& batch, Step& step) override;
  void validation_step(const Batch& batch, Step& step) override;
  bool classifies() const override { return true; }
  bool mixes_labels() const override { return true; }

  /// Is given what each validation step has found: losses [N] f32, logits [N, C], and the batch.
  using Watch = std::function<void(const Tensor& losses, const Tensor& logits, const Batch& batch)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

 private:
  CrossEntropy training_loss(const Tensor& logits, const Tensor& labels) const;

  nn::Module& model_;
  std::int64_t classes_;
  double smoothing_;
  Tensor class_weights_;
  Watch watch_ = {};
};

}  // namespace athanor
