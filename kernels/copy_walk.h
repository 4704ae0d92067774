#pragma once

#include <array>

#include "tensor/tensor.h"

// The order in which a copy walks its two tensors; Walk is the backend's own type.

namespace athanor::kernels {

/// x (operand 0, whose strides `from` are broadcast to y's shape) and y (operand 1) in the order of y's
/// memory.
template <class Walk> Walk walk_by_output(const Strides& from, const Tensor& y) {
  std::array<int, kMaxRank> order;
  for (int i = 0; i < y.rank(); ++i) {
    int at = i;
    for (; at > 0 && y.strides()[order[at - 1]] < y.strides()[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  Shape shape = y.shape();
  std::array<Strides, 2> strides{from, y.strides()};
  for (int i = 0; i < y.rank(); ++i) {
    shape[i] = y.shape()[order[i]];
    strides[0][i] = from[order[i]];
    strides[1][i] = y.strides()[order[i]];
  }
  return Walk(shape, strides);
}

/// The axis along which x is dense while y is dense along the innermost one, or -1: a transpose.
template <class Walk> int transposed_axis(const Walk& walk) {
  const int inner = walk.rank - 1;
  if (inner < 0 || walk.stride[1][inner] != 1 || walk.stride[0][inner] <= 1) return -1;
  for (int axis = 0; axis < inner; ++axis) {
    if (walk.stride[0][axis] == 1 && walk.size[axis] > 1) return axis;
  }
  return -1;
}

}  // namespace athanor::kernels
