#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cuda/divide.h"
#include "kernels/cuda/launch.h"
#include "tensor/tensor.h"

namespace athanor::cuda {

/// Strides of t when it is broadcast to `shape`: 0 along the axes it repeats.
inline Strides broadcast_strides(const Tensor& t, const Shape& shape) {
  Strides strides = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int own = axis - (shape.rank() - t.rank());
    strides[axis] = own < 0 || t.shape()[own] == 1 ? 0 : t.strides()[own];
  }
  return strides;
}

/// How N tensors of one (broadcast) shape are walked together by flat index, with neighbouring dimensions
/// merged wherever all operands allow it. Passed to kernels by value.
template <int N> struct Walk {
  int rank = 0;
  std::int64_t numel = 0;
  std::int64_t size[kMaxRank] = {};
  std::int64_t stride[N][kMaxRank] = {};

  Walk(const Shape& shape, const std::array<Strides, N>& strides) : numel(shape.numel()) {
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

  /// Whether every operand is one dense run of elements.
  bool dense() const {
    if (rank == 0) return true;
    for (int k = 0; k < N; ++k) {
      if (rank != 1 || stride[k][0] != 1) return false;
    }
    return true;
  }

  struct Offsets {
    std::int64_t at[N];
    __device__ __forceinline__ std::int64_t operator[](int k) const { return at[k]; }
  };
  /// The operands' element offsets at a flat index. An axis takes a division: unrolled, a few of these would
  /// not fit the instruction cache.
  __device__ __forceinline__ Offsets offsets(std::int64_t flat) const {
    Offsets result{};
#pragma unroll 1
    for (int axis = rank - 1; axis >= 0; --axis) {
      std::int64_t index = flat;
      if (axis > 0) {
        const auto row = divide(flat, size[axis]);
        index = row.rest;
        flat = row.whole;
      }
      for (int k = 0; k < N; ++k) result.at[k] += index * stride[k][axis];
    }
    return result;
  }
};

/// Not inlined: an op has callers by the hundred.
template <int N, class... T> [[gnu::noinline]] Walk<N> walk_of(const Shape& shape, const T&... operands) {
  return Walk<N>(shape, {broadcast_strides(operands, shape)...});
}

}  // namespace athanor::cuda
