#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// Adds a batch to running totals on the device, so that nobody waits for its loss:
/// totals [3] f64 += {loss * N, samples whose largest logit is the target's, N}.
/// loss [] f32|f64, the batch's mean; logits [N, C] floating, dense; target [N] i64. Of equal logits the
/// first counts as the largest; a row with a NaN counts as wrong.
template <class Context>
void add_metrics(Context& context, const Tensor& loss, const Tensor& logits, const Tensor& target,
                 const Tensor& totals);

}  // namespace athanor::kernels
