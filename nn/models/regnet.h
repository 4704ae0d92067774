#pragma once

#include <array>

#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// The shape of a RegNetY: what the paper's rule of widths comes to.
struct RegNetOptions {
  std::array<int, 4> blocks{};           ///< of each stage
  std::array<std::int64_t, 4> widths{};  ///< channels of each stage, multiples of group_width
  std::int64_t group_width = 8;          ///< channels of a group of the 3x3 convolutions
};
inline constexpr RegNetOptions kRegNetY400MF{{1, 3, 6, 6}, {48, 104, 208, 440}, 8};
inline constexpr RegNetOptions kRegNetY1600MF{{2, 6, 17, 2}, {48, 120, 336, 888}, 24};

/// Names, initial values and parameters as in torchvision's regnet_y_400mf (4,344,144) and regnet_y_1_6gf
/// (11,202,430). Source: Radosavovic et al. 2020, arXiv:2003.13678, figure 16 (RegNetY).
class RegNet final : public Module {
 public:
  explicit RegNet(const ModelOptions& options, const RegNetOptions& more = kRegNetY400MF);
  Tensor forward(const Tensor& x) override;

 private:
  ConvNorm stem;
  Sequential trunk_output;
  Linear fc;
};

}  // namespace athanor::nn
