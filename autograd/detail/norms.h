#pragma once

#include "autograd/node.h"
#include "kernels/norm.h"

// Shared by all norms.
namespace athanor::detail {

/// Checks that x is floating and has at least `axes` axes.
inline void check_norm_input(const char* op, const Tensor& x, int axes) {
  check_floating(op, x);
  ATH_CHECK(axes >= 1 && x.rank() >= axes, "{}: x must have at least {} axes, but is {}", op,
            std::max(axes, 1), x.shape());
}

/// Checks gamma, beta or a statistic, if given: it must have the dtype of the statistics.
inline void check_norm_parameter(const char* op, const char* name, const Tensor& p, const Shape& shape,
                                 const Tensor& x) {
  if (p.defined()) check_dense(op, name, p, wide_dtype(x), shape, x.device());
}

/// Where the kernel writes the gradient of an input.
inline kernels::GradientTarget norm_target(Grads& dx, int input, const Tensor& like) {
  const auto [tensor, write] = dx.target(input, like);
  return {tensor, write};
}

}  // namespace athanor::detail
