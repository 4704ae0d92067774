#pragma once

#include <cmath>

#include "kernels/context.h"
#include "tensor/half.h"

namespace athanor::kernels {

/// How a loss counts in a total: as the nearest multiple of 2^-24, about the error that an f32 log-sum-exp
/// has anyway. Sums of such numbers are exact in f64 below 2^29, so that they are the same in any order.
template <class A> ATH_HD double counted_loss(A loss) {
  return std::rint(static_cast<double>(loss) * 0x1p24) * 0x1p-24;
}

/// Adds a batch to running totals on the device, so that nobody waits for its loss:
/// totals [3] f64 += {sum of losses, samples whose largest logit is the target's, N}.
/// losses [N] f32|f64, of each sample; logits [N, C] floating; target [N] i64 in [0, C); all dense. Of equal
/// logits the first counts as the largest; a row with a NaN counts as wrong, and so does, on a device, one
/// whose target is no class: the loss on the CPU has refused it. Losses count as counted_loss() says: totals
/// below 2^29 have the same bits however samples are divided into batches, and batches among ranks.
template <class Context>
void add_metrics(Context& context, const Tensor& losses, const Tensor& logits, const Tensor& target,
                 const Tensor& totals);

}  // namespace athanor::kernels
