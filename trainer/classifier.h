#pragma once

#include "trainer/task.h"

namespace athanor {

/// Images to classes: cross entropy and accuracy. Training losses are smoothed, validated ones are not.
class Classifier final : public Task {
 public:
  /// `model` takes [N, H, W, C] to logits [N, classes], and must outlive this.
  Classifier(nn::Module& model, std::int64_t classes, double smoothing = 0);

  Tensor training_step(const Batch& batch, Step& step) override;
  void validation_step(const Batch& batch, Step& step) override;
  bool classifies() const override { return true; }

 private:
  nn::Module& model_;
  std::int64_t classes_;
  double smoothing_;
};

}  // namespace athanor
