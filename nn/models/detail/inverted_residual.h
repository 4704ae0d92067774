#pragma once

#include <cstdint>
#include <memory>

#include "nn/sequential.h"
#include "nn/squeeze_excitation.h"
#include "nn/stochastic_depth.h"

// The building blocks of MobileNetV2, MobileNetV3 and EfficientNet.

namespace athanor::nn {

struct ConvNormOptions {
  std::int64_t kernel = 3, stride = 1, groups = 1;  ///< (kernel - 1) / 2 zeros on each side
  Activation activation = Activation::none;
  double eps = 1e-5, momentum = 0.1;  ///< of the batch norm
};

/// Convolution without bias, batch norm, activation: "0", "1", "2", as in torchvision's Conv2dNormActivation.
/// [N, H, W, in] -> [N, P, Q, out].
std::unique_ptr<Sequential> conv_norm(std::int64_t in, std::int64_t out, const ConvNormOptions& options);

/// Dropout, then a linear layer: "0" and "1", for `classifier`.
std::unique_ptr<Sequential> dropout_linear(std::int64_t in, std::int64_t classes, double dropout,
                                           const Init& weight_init);

/// The multiple of 8 nearest to `channels` (ties round up), or the next one if that is under 90 % of it;
/// never 0. Source: the published code of Sandler et al. 2018.
std::int64_t make_divisible(double channels);

/// Initialises linear weights from a normal distribution with standard deviation 0.01.
void normal_01(const Tensor& w, RandomKey key);

struct InvertedResidualConfig {
  std::int64_t in, expanded, out;
  ConvNormOptions conv;       ///< of the depthwise convolution; the 1x1 ones share its other options
  std::int64_t squeezed = 0;  ///< channels of the squeeze and excitation before the projection; 0: none
  SqueezeExcitationOptions excitation = {};
  double stochastic_depth = 0;  ///< drop probability of the branch
  bool v2_names = false;        ///< the branch is "conv" and its projection unwrapped, as in MobileNetV2
};

/// 1x1 convolution to `expanded` channels (omitted if x has as many), depthwise convolution, squeeze and
/// excitation, 1x1 convolution to `out` channels without activation; adds x if the shapes agree.
/// Source: Sandler et al. 2018, arXiv:1801.04381, section 3.4; Howard et al. 2019, arXiv:1905.02244.
class InvertedResidual final : public Module {
 public:
  explicit InvertedResidual(const InvertedResidualConfig& config);
  Tensor forward(const Tensor& x) override;

 private:
  bool has_shortcut_;
  Sequential block_;
  StochasticDepth stochastic_depth_;
};

}  // namespace athanor::nn
