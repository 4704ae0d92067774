#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/divide.h"
#include "kernels/cuda/launch.h"
#include "kernels/detail/strided_walk.h"

namespace athanor::cuda {

/// A walk by flat index. Passed to kernels by value.
template <int N> struct Walk : StridedWalk<N> {
  using StridedWalk<N>::rank, StridedWalk<N>::size, StridedWalk<N>::stride;
  std::int64_t numel = 0;

  Walk(const Shape& shape, const std::array<Strides, N>& strides)
      : StridedWalk<N>(shape, strides), numel(shape.numel()) {}

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
