#pragma once

#include <array>
#include <cstdint>

#include "tensor/tensor.h"

namespace athanor {

/// Strides of t broadcast to `shape`: 0 along repeated axes.
inline Strides broadcast_strides(const Tensor& t, const Shape& shape) {
  Strides strides = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int own = axis - (shape.rank() - t.rank());
    strides[axis] = own < 0 || t.shape()[own] == 1 ? 0 : t.strides()[own];
  }
  return strides;
}

/// The joint walk of N tensors of one (broadcast) shape: sizes and each operand's element strides. Adjacent
/// dimensions are merged if all operands allow it, so dense tensors become one row.
template <int N> struct StridedWalk {
  int rank = 0;
  std::int64_t size[kMaxRank] = {};
  std::int64_t stride[N][kMaxRank] = {};

  /// From strides that are already broadcast to `shape`.
  StridedWalk(const Shape& shape, const std::array<Strides, N>& strides) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      bool merges = rank > 0;
      for (int k = 0; k < N && merges; ++k)
        merges = stride[k][rank - 1] == strides[static_cast<std::size_t>(k)][axis] * shape[axis];
      if (merges) {
        size[rank - 1] *= shape[axis];
      } else {
        size[rank++] = shape[axis];
      }
      for (int k = 0; k < N; ++k) stride[k][rank - 1] = strides[static_cast<std::size_t>(k)][axis];
    }
  }
};

}  // namespace athanor
