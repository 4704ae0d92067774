#pragma once

#include <array>

#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// The defaults are ConvNeXt-Tiny.
struct ConvNeXtOptions {
  std::array<int, 4> blocks{3, 3, 9, 3};                  ///< of each stage
  std::array<std::int64_t, 4> widths{96, 192, 384, 768};  ///< channels of each stage
  double layer_scale = 1e-6;                              ///< initial factor of a block's output
  double stochastic_depth = 0.1;  ///< drop probability of the last block; grows from 0 at the first
};

/// The paper's larger ones, with the stochastic depth of torchvision's.
inline constexpr ConvNeXtOptions kConvNeXtSmall{.blocks = {3, 3, 27, 3}, .stochastic_depth = 0.4};
inline constexpr ConvNeXtOptions kConvNeXtBase{
    .blocks = {3, 3, 27, 3}, .widths = {128, 256, 512, 1024}, .stochastic_depth = 0.5};

/// Names, initial values and 28,589,128 parameters as in torchvision's convnext_tiny, and so with the others.
/// Images of at least 32 pixels a side. Source: Liu et al. 2022, arXiv:2201.03545.
class ConvNeXt final : public Module {
 public:
  explicit ConvNeXt(const ModelOptions& options, const ConvNeXtOptions& more = {});
  Tensor forward(const Tensor& x) override;

 private:
  Sequential features, classifier;
};

}  // namespace athanor::nn
