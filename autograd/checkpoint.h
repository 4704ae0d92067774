#pragma once

#include <functional>

#include "tensor/tensor.h"

namespace athanor {

/// fn(x) without keeping what its backward pass would save: it is computed again when the gradient is needed,
/// with the same random numbers. Buffers that fn updates (running statistics) are updated once.
/// Source: Chen et al. 2016, arXiv:1604.06174.
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace athanor
