#include "nn/conv_norm.h"

namespace athanor::nn {

ConvNorm::ConvNorm(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& conv_options,
                   const BatchNormOptions& norm_options)
    : conv(in, out, kernel, conv_options), norm(out, norm_options) {
  register_module("0", conv);
  register_module("1", norm);
}

Tensor ConvNorm::operator()(const Tensor& x, const Residual& residual) {
  return conv_norm(x, conv.arguments(), norm.arguments(), residual);
}

Residual ConvNorm::as_residual(const Tensor& x) {
  if (!norm.training()) return (*this)(x);
  return conv_norm_residual(x, conv.arguments(), norm.arguments());
}

}  // namespace athanor::nn
