#pragma once

#include "autograd/conv_norm.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"

namespace athanor::nn {

/// A convolution and a batch norm with its activation, and with a residual if there is one: conv_norm(). Its
/// parts are "0" and "1". A parent that registers `conv` and `norm` themselves, instead of this layer, gives
/// them other names:
///
///     nn::ConvNorm conv1{3, 64, 3, {.padding = 1, .bias = false}, {.activation = Activation::relu}};
///     register_module("conv1", conv1.conv);
///     register_module("bn1", conv1.norm);
class ConvNorm final : public Module {
 public:
  ConvNorm(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& conv = {},
           const BatchNormOptions& norm = {});

  Tensor forward(const Tensor& x) override { return (*this)(x, {}); }
  using Module::operator();
  /// activation(norm(conv(x)) + residual)
  Tensor operator()(const DeferredNorm& x, const DeferredNorm& residual);
  /// max_pool2d(activation(norm(conv(x)))): see conv_norm_max_pool().
  Tensor pooled(const Tensor& x, const Pool2dParams& pool);
  /// The same as the input or the residual of another ConvNorm: see conv_norm_deferred().
  DeferredNorm deferred(const DeferredNorm& x, const DeferredNorm& residual = {});

  Conv2d conv;
  BatchNorm norm;
};

}  // namespace athanor::nn
