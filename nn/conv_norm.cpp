#include "nn/conv_norm.h"

namespace athanor::nn {

ConvNorm::ConvNorm(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& conv_options,
                   const BatchNormOptions& norm_options)
    : conv(in, out, kernel, conv_options), norm(out, norm_options) {
  register_module("0", conv);
  register_module("1", norm);
}

Tensor ConvNorm::operator()(const DeferredNorm& x, const DeferredNorm& residual) {
  return conv_norm(x, conv.arguments(), norm.arguments(), residual);
}

Tensor ConvNorm::pooled(const Tensor& x, const Pool2dParams& pool) {
  return conv_norm_max_pool(x, conv.arguments(), norm.arguments(), pool);
}

DeferredNorm ConvNorm::deferred(const DeferredNorm& x, const DeferredNorm& residual) {
  return conv_norm_deferred(x, conv.arguments(), norm.arguments(), residual);
}

}  // namespace athanor::nn
