#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// Zeroes elements with probability p and scales the rest by 1 / (1 - p); x itself where not training or p is
/// 0. The mask is a function of (step seed, applied step, how many random ops this thread has run in the
/// step, element of the batch of all ranks: next_random_op()). Source: Srivastava et al. 2014
/// (inverted form).
Tensor dropout(const Tensor& x, float p, bool training);

}  // namespace athanor
