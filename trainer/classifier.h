#pragma once

#include "data/preprocess.h"
#include "trainer/task.h"

namespace athanor {

/// Images to classes: cross entropy and accuracy. Training losses are smoothed, validated ones are not.
class Classifier final : public Task {
 public:
  /// `model` takes [N, H, W, C] to logits [N, classes], and must outlive this.
  Classifier(nn::Module& model, Preprocess preprocess, std::int64_t classes, Device device, double smoothing);

  nn::Module& network() override { return model_; }
  Tensor training_step(const Batch& batch, Pass& pass) override;
  void validation_step(const Batch& batch, Pass& pass) override;

 private:
  nn::Module& model_;
  Preprocess preprocess_;
  std::int64_t classes_;
  Device device_;
  double smoothing_;
};

}  // namespace athanor
