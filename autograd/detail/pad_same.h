#pragma once

#include "autograd/detail/zeros.h"
#include "kernels/conv.h"

namespace athanor::detail {

/// Pads x for "same" output: kernels pad both sides equally, so an odd number of zeros needs one appended to
/// x. Sets params.padding to the rest.
inline Tensor pad_same(const Tensor& x, const Shape& w, Conv2dParams& params) {
  params.same_padding = false;
  Tensor padded = x;
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t zeros = params.dilation[axis] * (w[1 + axis] - 1);
    params.padding[axis] = zeros / 2;
    if (zeros % 2 != 0) padded = with_zeros_behind(padded, 1 + axis, 1);
  }
  return padded;
}

}  // namespace athanor::detail
