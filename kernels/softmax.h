#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor::kernels {

/// softmax: y = exp(x - max) / sum(exp(x - max)); log_softmax: y = x - max - log(sum(exp(x - max))).
enum class SoftmaxForm : std::uint8_t { probability, logarithm };

/// Along an axis of x; x and y dense, one shape and floating dtype; computed in f32 (f64 for f64). y may be
/// x. A NaN makes its whole slice NaN. Reads x three times (from cache if a slice fits), writes y once.
template <class Context>
void softmax_forward(Context& context, SoftmaxForm form, const Tensor& x, int axis, const Tensor& y);

/// dx = y (dy - sum(dy y)) for probability, dx = dy - exp(y) sum(dy) for logarithm. All dense. dx may be dy.
template <class Context>
void softmax_backward(Context& context, SoftmaxForm form, const Tensor& y, const Tensor& dy, int axis,
                      const Tensor& dx);

}  // namespace athanor::kernels
