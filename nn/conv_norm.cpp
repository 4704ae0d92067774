#include "nn/conv_norm.h"

#include "autograd/conv.h"

namespace athanor::nn {

ConvAndSums with_sums(Conv2d& conv, const BatchNorm& norm, const Tensor& x) {
  return norm.reads_sums() ? conv.with_sums(x) : ConvAndSums{conv(x), {}};
}

Tensor conv_norm_act(Conv2d& conv, BatchNorm& norm, const Tensor& x, const Tensor& residual) {
  if (const kernels::PackedWeights* packed = conv.packed_with(norm, x)) {
    Conv2dParams params = conv.params_;
    params.activation = norm.activation();
    return conv2d_packed(x, *packed, params, residual);
  }
  const ConvAndSums y = with_sums(conv, norm, x);
  return residual.defined() || norm.reads_sums() ? norm.forward(y, residual) : norm(y.y);
}

}  // namespace athanor::nn
