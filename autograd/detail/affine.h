#pragma once

#include "autograd/node.h"
#include "kernels/elementwise.h"
#include "kernels/on_device.h"

namespace athanor::detail {

/// scale x + shift, not recorded.
inline Tensor affine(const Tensor& x, double scale, double shift = 0) {
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) { kernels::affine(context, x, scale, shift, y); });
  return y;
}

}  // namespace athanor::detail
