#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// exp(x) / sum(exp(x)) along an axis, shifted by the maximum first; f32 inside.
Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);

}  // namespace athanor
