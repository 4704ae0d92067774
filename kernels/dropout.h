#pragma once

#include "kernels/context.h"

namespace athanor::kernels {

/// y[i] = keep(i) ? x[i] / (1 - p) : 0, where keep(i) compares word i of a stream with p. The stream is named
/// by the seed and applied step of the context's StepState, and by `op`, the step's count of random ops. On
/// several ranks the seed is the rank's own (dist::rank_seed()), or all would draw the same masks. Its
/// own backward: dx is this of dy, with the same `op`. x, y dense, one floating dtype; y may be x; p in [0,
/// 1]. Moves 2 elements per element: the mask is made again, not stored.
template <class Context>
void dropout(Context& context, float p, std::int64_t op, const Tensor& x, const Tensor& y);

}  // namespace athanor::kernels
