#pragma once

#include <functional>

#include "tensor/tensor.h"

namespace athanor {

/// Computes fn(x) without saving tensors for the backward pass, which computes fn again, with the same random
/// numbers. Buffers that fn updates (running statistics) are updated once.
/// Source: Chen et al. 2016, arXiv:1604.06174.
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace athanor
