#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

// Losses over rows. A is f32, or f64 where the input is. The result y is either one loss per row (element),
// or a scalar [] that holds their sum times `scale` (1 / N for a mean), summed in an order that depends on
// the shape alone. dy has y's shape and any strides; `scale` is 1 where there is one loss per row. Everything
// else is dense.

/// Throws ArgumentError naming `op` unless every target lies in [0, classes). On a device that the host would
/// have to wait for, does nothing: there, a target out of range gives a loss of NaN.
template <class Context>
void check_target(Context& context, const char* op, const Tensor& target, std::int64_t classes);

/// logits [N, C] floating, target [N] i64 -> losses [N] A, and `stats` [N, 2] A: each row's maximum m and
/// 1 / sum(exp(x - m)); where y is given, a scalar [] A, also scale * sum(losses) into it. Reads the row
/// three times, out of cache but for the first.
template <class Context>
void cross_entropy_forward(Context& context, const Tensor& logits, const Tensor& target, double smoothing,
                           double scale, const Tensor& stats, const Tensor& losses, const Tensor& y);
/// dx = scale * dy * (softmax - (1 - smoothing) onehot - smoothing / C). One pass.
template <class Context>
void cross_entropy_backward(Context& context, const Tensor& logits, const Tensor& target, const Tensor& stats,
                            double smoothing, double scale, const Tensor& dy, const Tensor& dx);

/// log_probs [N, C], target [N] -> y [] or [N] A.
template <class Context>
void nll_forward(Context& context, const Tensor& log_probs, const Tensor& target, double scale,
                 const Tensor& y);
template <class Context>
void nll_backward(Context& context, const Tensor& target, double scale, const Tensor& dy, const Tensor& dx);

/// y = (a - b)^2, one per element; y of a's shape, A.
template <class Context>
void squared_difference(Context& context, const Tensor& a, const Tensor& b, const Tensor& y);
/// a, b of one shape -> y [] A: scale * sum((a - b)^2).
template <class Context>
void mse_forward(Context& context, const Tensor& a, const Tensor& b, double scale, const Tensor& y);
/// da = scale * dy * 2 (a - b); dy [] or dense like a. That of b is the same call with a and b exchanged.
template <class Context>
void mse_backward(Context& context, const Tensor& a, const Tensor& b, double scale, const Tensor& dy,
                  const Tensor& da);

}  // namespace athanor::kernels
