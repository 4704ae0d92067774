#include "nn/models/detail/inverted_residual.h"

#include "autograd/elementwise.h"
#include "nn/batch_norm.h"
#include "nn/dropout.h"
#include "nn/linear.h"

namespace athanor::nn {

void normal_01(const Tensor& w, RandomKey key) {
  init::normal(w, key, 0, 0.01);
}

std::int64_t make_divisible(double channels) {
  const std::int64_t nearest = static_cast<std::int64_t>(channels + 4) / 8 * 8;
  const std::int64_t rounded = nearest < 8 ? 8 : nearest;
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

std::unique_ptr<Sequential> conv_norm(std::int64_t in, std::int64_t out, const ConvNormOptions& options) {
  auto layers = std::make_unique<Sequential>();
  layers->add<Conv2d>(in, out, options.kernel,
                      Conv2dOptions{.stride = options.stride,
                                    .padding = (options.kernel - 1) / 2,
                                    .groups = options.groups,
                                    .bias = false,
                                    .weight_init = init::kaiming_fan_out});
  layers->add<BatchNorm>(
      out,
      BatchNormOptions{.eps = options.eps, .momentum = options.momentum, .activation = options.activation});
  return layers;
}

std::unique_ptr<Sequential> dropout_linear(std::int64_t in, std::int64_t classes, double dropout,
                                           const Init& weight_init) {
  auto layers = std::make_unique<Sequential>();
  layers->add<Dropout>(static_cast<float>(dropout));
  layers->add<Linear>(in, classes, LinearOptions{.weight_init = weight_init, .bias_init = init::zeros});
  return layers;
}

InvertedResidual::InvertedResidual(const InvertedResidualConfig& config)
    : has_shortcut_(config.conv.stride == 1 && config.in == config.out),
      stochastic_depth_(config.stochastic_depth) {
  ConvNormOptions pointwise = config.conv, depthwise = config.conv;
  pointwise.kernel = pointwise.stride = 1;
  depthwise.groups = config.expanded;
  if (config.expanded != config.in) block_.append(conv_norm(config.in, config.expanded, pointwise));
  block_.append(conv_norm(config.expanded, config.expanded, depthwise));
  if (config.squeezed > 0) block_.add<SqueezeExcitation>(config.expanded, config.squeezed, config.excitation);
  pointwise.activation = Activation::none;
  if (config.v2_names) {
    block_.add<Conv2d>(config.expanded, config.out, 1,
                       Conv2dOptions{.bias = false, .weight_init = init::kaiming_fan_out});
    block_.add<BatchNorm>(config.out, BatchNormOptions{.eps = pointwise.eps, .momentum = pointwise.momentum});
  } else {
    block_.append(conv_norm(config.expanded, config.out, pointwise));
  }
  register_module(config.v2_names ? "conv" : "block", block_);
  register_module("stochastic_depth", stochastic_depth_);
}

Tensor InvertedResidual::forward(const Tensor& x) {
  if (!has_shortcut_) return block_(x);
  const bool drops = stochastic_depth_.training() && stochastic_depth_.p() > 0;
  return drops ? stochastic_depth_(block_(x)) + x : block_.with_residual(x, x);
}

}  // namespace athanor::nn
