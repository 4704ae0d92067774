#pragma once

#include "kernels/context.h"
#include "kernels/loss_ops.h"

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

/// Cross-entropy against a distribution: of row n, with u_c = w_c ((1 - smoothing) q_c + smoothing / C), the
/// sum of -u_c log(softmax_c). logits [N, C]; q is `target`, like logits, and undefined where smoothing is 1;
/// w is `weight` [C] A, undefined where it is 1. Writes losses [N] A, and of each row the maximum m,
/// 1 / sum(exp(x - m)) and the sum of u into `stats` [N, 3] A. Reads logits and target once, out of cache.
template <class Context>
void soft_cross_entropy_forward(Context& context, const Tensor& logits, const Tensor& target,
                                const Tensor& weight, double smoothing, const Tensor& stats,
                                const Tensor& losses);
/// dx = dy (softmax sum(u) - u); dy [N] A of any stride. One pass.
template <class Context>
void soft_cross_entropy_backward(Context& context, const Tensor& logits, const Tensor& target,
                                 const Tensor& weight, double smoothing, const Tensor& stats,
                                 const Tensor& dy, const Tensor& dx);

/// target [N] i64 -> kept [N] bool: whether it is not `ignored`; classes [N] i64: the target where it is
/// kept, else 0.
template <class Context>
void split_ignored(Context& context, const Tensor& target, std::int64_t ignored, const Tensor& classes,
                   const Tensor& kept);

/// log_probs [N, C], target [N] -> y [] or [N] A.
template <class Context>
void nll_forward(Context& context, const Tensor& log_probs, const Tensor& target, double scale,
                 const Tensor& y);
template <class Context>
void nll_backward(Context& context, const Tensor& target, double scale, const Tensor& dy, const Tensor& dx);

// Losses over pairs of elements (kernels/loss_ops.h). a and b have one shape and floating dtype; `weight`,
// for an op that is kWeighted, has that shape, too, and holds A.

/// y = op(a, b), one per element; y of a's shape, A. Moves 3 elements per element.
template <class Op, class Context>
void pair_loss(Context& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
               const Tensor& y);
/// y [] A: scale * sum(op(a, b)).
template <class Op, class Context>
void pair_loss_sum(Context& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight,
                   double scale, const Tensor& y);
/// da = scale * dy * slope(a, b); dy [] or dense like a.
template <class Op, class Context>
void pair_loss_backward(Context& context, const Op& op, const Tensor& a, const Tensor& b,
                        const Tensor& weight, double scale, const Tensor& dy, const Tensor& da);

}  // namespace athanor::kernels
