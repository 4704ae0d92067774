#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// Zeroes elements with probability p and scales the rest by 1 / (1 - p). Returns x itself if not training or
/// p is 0. The mask depends on (step seed, applied step, index of this random op on its thread in the step,
/// element of the global batch): see next_random_op(). Source: Srivastava et al. 2014 (inverted form).
Tensor dropout(const Tensor& x, float p, bool training);

}  // namespace athanor
