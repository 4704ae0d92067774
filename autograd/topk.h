#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace athanor {

struct TopK {
  Tensor values;   ///< of x's shape, but for k along the axis
  Tensor indices;  ///< i64, where each lies along the axis
};

/// The k largest elements along an axis, or the smallest, sorted. NaN is the largest of all; equal elements
/// come in the order of their indices. x of any dtype but bool, any strides. The gradient goes to the
/// elements chosen. Throws ArgumentError on k outside [0, size of the axis].
///
/// On the CPU a partial sort, n log k steps for each slice; on a device k passes over the slice, so meant for
/// small k there.
TopK topk(const Tensor& x, std::int64_t k, int axis = -1, bool largest = true);

}  // namespace athanor
