#pragma once

#include "tensor/tensor.h"

namespace athanor {

// x floating, any shape but a scalar, any strides; computed in f32 (f64 for f64). Subtracting the maximum
// first prevents overflow. A NaN, or a slice of -infinity alone, makes the whole slice NaN. Throws
// ArgumentError on dtype and axis.

/// exp(x) / sum(exp(x)) along an axis.
Tensor softmax(const Tensor& x, int axis = -1);
/// x - log(sum(exp(x))) along an axis.
Tensor log_softmax(const Tensor& x, int axis = -1);

}  // namespace athanor
