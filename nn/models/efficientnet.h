#pragma once

#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// B0 as it stands; the larger ones have more width, depth and dropout.
struct EfficientNetOptions {
  double width = 1;               ///< what channels are multiplied by, then rounded to multiples of 8
  double depth = 1;               ///< what the blocks of a stage are multiplied by, then rounded up
  double dropout = 0.2;           ///< before the last layer
  double stochastic_depth = 0.2;  ///< what a block's probability of being dropped grows towards, from 0
};

/// Names, initial values and 5,288,548 parameters as torchvision's efficientnet_b0.
/// Source: Tan and Le 2019, arXiv:1905.11946, table 1.
class EfficientNet final : public Module {
 public:
  explicit EfficientNet(const ModelOptions& options, const EfficientNetOptions& more = {});
  Tensor forward(const Tensor& x) override;

 private:
  Sequential features;
  std::unique_ptr<Sequential> classifier;
};

}  // namespace athanor::nn
