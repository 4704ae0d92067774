#pragma once

#include "tensor/tensor.h"

namespace athanor {

// x floating, any shape but a scalar, any strides; f32 inside (f64 for f64). Shifted by the maximum first, so
// that nothing overflows. One NaN, or a slice of -infinity alone, makes the slice NaN. Throws ArgumentError
// on dtype and axis.

/// exp(x) / sum(exp(x)) along an axis.
Tensor softmax(const Tensor& x, int axis = -1);
/// x - log(sum(exp(x))) along an axis.
Tensor log_softmax(const Tensor& x, int axis = -1);

}  // namespace athanor
