#pragma once

#include "autograd/detail/dense.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "kernels/activate.h"
#include "kernels/elementwise.h"
#include "kernels/on_device.h"

namespace athanor::detail {

/// Whether the gradient needs the value before the activation, which a fused op does not keep.
inline bool needs_its_input(Activation activation) {
  return !kernels::gradient_from_output(activation);
}

/// Whether the activation must run as a separate op.
inline bool runs_separately(Activation activation) {
  return needs_its_input(activation) || (activation != Activation::none && !fusion_enabled());
}

/// Runs the activation as a separate op.
inline Tensor activate(Activation activation, const Tensor& z) {
  switch (activation) {
    case Activation::none: return z;
#define ATH_CASE(Op, name) \
  case Activation::name: return name(z);
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  return z;
}

/// dL/dz for y = activation(z), from y (undefined without an activation) and dL/dy; dense. Only for an
/// activation that does not need its input.
inline Tensor activation_gradient(Activation activation, const Tensor& y, const Tensor& dy) {
  const Tensor gradient = dense(dy);
  if (activation == Activation::none) return gradient;
  const Tensor dz = empty_like(y);
  on_device(y.device(), [&](auto& context) {
    kernels::dispatch_activation(activation, [&]<class Op>() {
      if constexpr (Op::kFromOutput && !std::is_same_v<Op, kernels::Identity>)
        kernels::unary_backward<Op>(context, y, gradient, dz);
    });
  });
  return dz;
}

}  // namespace athanor::detail
