#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace athanor {

struct TopK {
  Tensor values;   ///< x's shape, with k along the axis
  Tensor indices;  ///< i64, the position of each along the axis
};

/// The k largest elements along an axis, or the smallest, sorted. NaN counts as the largest; equal elements
/// come in index order. x of any dtype but bool, any strides. The gradient goes to the selected elements.
/// Throws ArgumentError on k outside [0, size of the axis].
///
/// The CPU uses a partial sort, n log k steps per slice. A device makes k passes over the slice, so keep k
/// small there.
TopK topk(const Tensor& x, std::int64_t k, int axis = -1, bool largest = true);

}  // namespace athanor
