#pragma once

#include "kernels/context.h"
#include "kernels/loss_ops.h"

namespace athanor::kernels {

// Losses over rows. A is f32, or f64 for f64 input. The result y is either one loss per row (element), or a
// scalar [] with their sum times `scale` (1 / N for a mean), summed in an order that depends on the shape
// alone. dy has y's shape and any strides; with one loss per row, `scale` is 1. All else is dense.

/// Throws ArgumentError naming `op` unless every target is in [0, classes). CPU only, to avoid a wait: on a
/// device, a target out of range gives a loss of NaN.
ATH_KERNEL(void, check_target, const char* op, const Tensor& target, std::int64_t classes);

/// logits [N, C] floating, target [N] i64 -> losses [N] A, and `stats` [N, 2] A: each row's maximum m and 1 /
/// sum(exp(x - m)). If given, y [] A becomes scale * sum(losses). Reads each row three times, the last two
/// from cache.
ATH_KERNEL(void, cross_entropy_forward, const Tensor& logits, const Tensor& target, double smoothing,
           double scale, Out stats, Out losses, Out y);
/// dx = scale * dy * (softmax - (1 - smoothing) onehot - smoothing / C). One pass.
ATH_KERNEL(void, cross_entropy_backward, const Tensor& logits, const Tensor& target, const Tensor& stats,
           double smoothing, double scale, const Tensor& dy, Out dx);
ATH_MAP(cross_entropy_backward,
        (const Tensor& logits, const Tensor& target, const Tensor& stats, double, double, const Tensor& dy,
         Out dx),
        "cross_entropy_backward", (logits, target, stats, dy), (dx))

/// Cross-entropy against a distribution. The loss of row n is the sum of -u_c log(softmax_c), with u_c = w_c
/// ((1 - smoothing) q_c + smoothing / C). logits [N, C]; q is `target`, like logits, undefined for smoothing
/// 1; w is `weight` [C] A, undefined for 1. Writes losses [N] A, and per row the maximum m, 1 / sum(exp(x -
/// m)) and the sum of u to `stats` [N, 3] A. Reads logits and target once from memory.
ATH_KERNEL(void, soft_cross_entropy_forward, const Tensor& logits, const Tensor& target, const Tensor& weight,
           double smoothing, Out stats, Out losses);
ATH_MAP(soft_cross_entropy_forward,
        (const Tensor& logits, const Tensor& target, const Tensor& weight, double, Out stats, Out losses),
        "soft_cross_entropy", (logits, target, weight), (stats, losses))
/// dx = dy (softmax sum(u) - u); dy [N] A of any stride. One pass.
ATH_KERNEL(void, soft_cross_entropy_backward, const Tensor& logits, const Tensor& target,
           const Tensor& weight, double smoothing, const Tensor& stats, const Tensor& dy, Out dx);
ATH_MAP(soft_cross_entropy_backward,
        (const Tensor& logits, const Tensor& target, const Tensor& weight, double, const Tensor& stats,
         const Tensor& dy, Out dx),
        "soft_cross_entropy_backward", (logits, target, weight, stats, dy), (dx))

/// target [N] i64 -> kept [N] bool: target != ignored; classes [N] i64: the target if kept, else 0.
ATH_KERNEL(void, split_ignored, const Tensor& target, std::int64_t ignored, Out classes, Out kept);
ATH_MAP(split_ignored, (const Tensor& target, std::int64_t, Out classes, Out kept), "split_ignored", (target),
        (classes, kept))

/// log_probs [N, C], target [N] -> y [] or [N] A.
ATH_KERNEL(void, nll_forward, const Tensor& log_probs, const Tensor& target, double scale, Out y);
ATH_KERNEL(void, nll_backward, const Tensor& target, double scale, const Tensor& dy, Out dx);
ATH_MAP(nll_backward, (const Tensor& target, double, const Tensor& dy, Out dx), "nll_loss_backward",
        (target, dy), (dx))

// Losses over pairs of elements (kernels/loss_ops.h). a and b have one shape and floating dtype; for an op
// with kWeighted, `weight` has that shape too, and dtype A.

/// y = op(a, b), one per element; y of a's shape, A. Moves 3 elements per element.
ATH_KERNEL(template <class Op> void, pair_loss, const Op& op, const Tensor& a, const Tensor& b,
           const Tensor& weight, Out y);
/// y [] A: scale * sum(op(a, b)).
ATH_KERNEL(template <class Op> void, pair_loss_sum, const Op& op, const Tensor& a, const Tensor& b,
           const Tensor& weight, double scale, Out y);
/// da = scale * dy * slope(a, b); dy [] or dense like a.
ATH_KERNEL(template <class Op> void, pair_loss_backward, const Op& op, const Tensor& a, const Tensor& b,
           const Tensor& weight, double scale, const Tensor& dy, Out da);

}  // namespace athanor::kernels
