#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor::kernels {

/// softmax: y = exp(x - max) / sum(exp(x - max)); log_softmax: y = x - max - log(sum(exp(x - max))).
enum class SoftmaxForm : std::uint8_t { probability, logarithm };

/// Along an axis of x; x and y dense, one shape and floating dtype; computed in f32 (f64 for f64). y may be
/// x. A NaN makes its whole slice NaN. Reads x three times (from cache if a slice fits), writes y once.
ATH_KERNEL(void, softmax_forward, SoftmaxForm form, const Tensor& x, int axis, Out y);
ATH_MAP(softmax_forward, (SoftmaxForm, const Tensor& x, int, Out y), "softmax", (x), (y))

/// dx = y (dy - sum(dy y)) for probability, dx = dy - exp(y) sum(dy) for logarithm. All dense. dx may be dy.
ATH_KERNEL(void, softmax_backward, SoftmaxForm form, const Tensor& y, const Tensor& dy, int axis, Out dx);
ATH_MAP(softmax_backward, (SoftmaxForm, const Tensor& y, const Tensor& dy, int, Out dx), "softmax_backward",
        (y, dy), (dx))

}  // namespace athanor::kernels
