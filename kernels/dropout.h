#pragma once

#include "kernels/random_op.h"

namespace athanor::kernels {

/// y[i] = keep(i) ? x[i] / (1 - p) : 0, where keep(i) compares word op.first + i of a stream with p. The
/// stream depends on the seed and applied step of the context's StepState, the same on all ranks, and on
/// op.number. Also its own backward: dx from dy with the same `op`. x, y dense, one floating dtype; y may be
/// x; p in [0, 1]. Moves 2 elements per element: the mask is recomputed, not stored.
ATH_KERNEL(void, dropout, float p, const RandomOp& op, const Tensor& x, Out y);

}  // namespace athanor::kernels
