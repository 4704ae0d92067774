#pragma once

#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// The defaults are B0; larger variants have more width, depth and dropout.
struct EfficientNetOptions {
  double width = 1;               ///< factor of the channels, then rounded to multiples of 8
  double depth = 1;               ///< factor of the blocks per stage, then rounded up
  double dropout = 0.2;           ///< before the last layer
  double stochastic_depth = 0.2;  ///< limit of a block's drop probability, which grows from 0
};

/// Sizes from the paper's published code; torchvision's weights are for images of 240, 288, 300 and 380
/// pixels a side.
inline constexpr EfficientNetOptions kEfficientNetB1{.depth = 1.1};
inline constexpr EfficientNetOptions kEfficientNetB2{.width = 1.1, .depth = 1.2, .dropout = 0.3};
inline constexpr EfficientNetOptions kEfficientNetB3{.width = 1.2, .depth = 1.4, .dropout = 0.3};
inline constexpr EfficientNetOptions kEfficientNetB4{.width = 1.4, .depth = 1.8, .dropout = 0.4};

/// Names, initial values and 5,288,548 parameters as in torchvision's efficientnet_b0, and so with the
/// others. Source: Tan and Le 2019, arXiv:1905.11946, table 1.
class EfficientNet final : public Module {
 public:
  explicit EfficientNet(const ModelOptions& options, const EfficientNetOptions& more = {});
  Tensor forward(const Tensor& x) override;

 private:
  Sequential features;
  std::unique_ptr<Sequential> classifier;
};

}  // namespace athanor::nn
