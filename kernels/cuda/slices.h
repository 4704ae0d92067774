#pragma once

#include <cstdint>

#include "kernels/cuda/context.h"
#include "kernels/cuda/group.h"
#include "kernels/detail/axis_shape.h"

namespace athanor::cuda {

/// How a kernel folds along the axis where inner > 1: neighbouring lanes take neighbouring slices, so that
/// accesses are whole lines, and the warps of a block share a slice's length and join what they have in
/// shared memory. Passed to kernels by value.
struct Columns : AxisShape {
  static constexpr int width = kWarp, height = 8, threads = width * height;

  using AxisShape::AxisShape;

  static dim3 block() { return dim3(width, height); }
  __host__ __device__ std::int64_t across() const { return (inner + width - 1) / width; }
  unsigned blocks(const CudaContext& context) const { return blocks_for(context, outer * across(), 1, 16); }

  /// Where in the length this thread begins; it goes on by `height`.
  __device__ __forceinline__ std::int64_t rank() const { return threadIdx.y; }

  /// Calls f(offset of the slice's first element, number of the slice, whether there is one) with all threads
  /// of a block at once.
  template <class F> __device__ __forceinline__ void for_each(const F& f) const {
    for (std::int64_t task = blockIdx.x; task < outer * across(); task += gridDim.x) {
      const std::int64_t column = task % across() * width + threadIdx.x;
      const std::int64_t before = task / across();
      f(before * n * inner + column, before * inner + column, column < inner);
    }
  }

  /// Calls f(begin, end) for pieces of this thread's share of the length, which it takes in steps of
  /// `height`: sums of pieces round less than one long sum.
  template <class F> __device__ __forceinline__ void for_each_piece(bool inside, const F& f) const {
    constexpr std::int64_t kPiece = 256 * height;
    for (std::int64_t begin = rank(); inside && begin < n; begin += kPiece)
      f(begin, begin + kPiece < n ? begin + kPiece : n);
  }

  /// Folds what the threads of one slice have, in their order; each of them gets the result.
  template <class V, class Op> __device__ __forceinline__ V fold(const V& value, const Op& op) const {
    __shared__ V of[height][width];
    of[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    V result = of[0][threadIdx.x];
#pragma unroll
    for (int h = 1; h < height; ++h) result = op(result, of[h][threadIdx.x]);
    __syncthreads();  // before the next slice's
    return result;
  }
};

}  // namespace athanor::cuda
