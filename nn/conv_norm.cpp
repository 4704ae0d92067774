#include "nn/conv_norm.h"

#include "autograd/conv.h"

namespace athanor::nn {

Tensor conv_norm_act(Conv2d& conv, BatchNorm& norm, const Tensor& x, const Tensor& residual) {
  if (const kernels::PackedWeights* packed = conv.packed_with(norm, x)) {
    Conv2dParams params = conv.params_;
    params.activation = norm.activation();
    return conv2d_packed(x, *packed, params, residual);
  }
  return residual.defined() ? norm.forward(conv(x), residual) : norm(conv(x));
}

}  // namespace athanor::nn
