#pragma once

#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/models/model.h"

namespace athanor::nn {

/// LeNet-5 as it is trained today: ReLU, max pooling, full connections; 61,706 parameters for 28 x 28 x 1.
/// Source: LeCun, Bottou, Bengio and Haffner 1998, section 2 (tanh, average pooling, partial connections).
class LeNet5 final : public Module {
 public:
  explicit LeNet5(const ModelOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  std::int64_t side_;  // side of the image that reaches fc1
  Conv2d conv1, conv2;
  Linear fc1, fc2, fc3;
};

}  // namespace athanor::nn
