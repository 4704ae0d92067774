#pragma once

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/pool.h"

namespace athanor::nn {

/// A small CNN for small images: 30,762 parameters for 8 x 8 x 1. Three 3x3 convolutions with batch norm, two
/// poolings, one linear layer.
class DigitsCnn final : public Module {
 public:
  explicit DigitsCnn(const ModelOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  Conv2d conv1, conv2, conv3;
  BatchNorm bn1, bn2, bn3;
  MaxPool2d pool{2};
  Linear fc;
};

}  // namespace athanor::nn
