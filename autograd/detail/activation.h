#pragma once

#include "autograd/detail/dense.h"
#include "autograd/elementwise.h"
#include "kernels/activation.h"
#include "kernels/elementwise.h"

namespace athanor::detail {

/// Whether the gradient needs the value before the activation, which a fused op does not keep: relu's sign
/// shows in the result.
inline bool needs_its_input(Activation activation) {
  return activation == Activation::gelu || activation == Activation::silu;
}

/// Such an activation as an op of its own.
inline Tensor activate(Activation activation, const Tensor& z) {
  return activation == Activation::gelu ? gelu(z) : silu(z);
}

/// dL/dz for y = activation(z), from y (undefined where there is no activation) and dL/dy; dense.
inline Tensor activation_gradient(Activation activation, const Tensor& y, const Tensor& dy) {
  const Tensor gradient = dense(dy);
  if (activation == Activation::none) return gradient;
  const Tensor dz = empty_like(y);
  on_device(y.device(), [&](auto& context) {
    kernels::unary_backward<kernels::Relu>(context, y, gradient, dz);  // y > 0 exactly where z > 0
  });
  return dz;
}

}  // namespace athanor::detail
