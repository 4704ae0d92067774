#pragma once

#include <cstdint>
#include <tuple>

#include "kernels/cuda/context.h"
#include "kernels/cuda/vec.h"

// Threads that work on one thing together: a warp (kThreads = 32), or a whole block of more. What they fold
// has an order that depends on kThreads alone.

namespace athanor::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;

struct Plus {
  template <class A> __device__ __forceinline__ A operator()(A a, A b) const { return a + b; }
};
/// The larger of two; NaN where one is.
struct MaxOrNan {
  template <class A> __device__ __forceinline__ A operator()(A a, A b) const {
    return (a > b) | (a != a) ? a : b;
  }
};

template <class A> __device__ __forceinline__ A shuffle_xor(A value, int mask) {
  return __shfl_xor_sync(kWholeWarp, value, mask);
}

/// Folds one value of every lane; every lane gets the result. op is associative and commutative but for
/// rounding.
template <class A, class Op> __device__ __forceinline__ A warp_fold(A value, const Op& op) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  return value;
}

/// The same over a warp, or over a block of kThreads, whose threads must all call.
template <int kThreads, class A, class Op> __device__ __forceinline__ A group_fold(A value, const Op& op) {
  static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
  value = warp_fold(value, op);
  if constexpr (kThreads > kWarp) {
    constexpr int kWarps = kThreads / kWarp;
    __shared__ A of_warp[kWarps];
    const int thread = static_cast<int>(threadIdx.x + threadIdx.y * blockDim.x);
    if (thread % kWarp == 0) of_warp[thread / kWarp] = value;
    __syncthreads();
    value = of_warp[0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) value = op(value, of_warp[warp]);
    __syncthreads();  // before of_warp is written again
  }
  return value;
}

template <int kThreads, class A> __device__ __forceinline__ A group_sum(A value) {
  return group_fold<kThreads>(value, Plus{});
}

// Rows -----------------------------------------------------------------------------------------------------

/// A row of n neighbours that kThreads threads share: W neighbours each, in turn. kElements of them fit each
/// thread's registers; 0 where the row is too long for that.
template <int kThreads, int kElements, int W> struct RowShape {
  static constexpr int threads = kThreads, elements = kElements, width = W;

  static __device__ __forceinline__ int rank() { return static_cast<int>(threadIdx.x) % kThreads; }
  /// The first row of this group, and how many groups there are.
  static __device__ __forceinline__ std::int64_t first() {
    return std::int64_t{blockIdx.x} * (kRowBlock / kThreads) + threadIdx.x / kThreads;
  }
  static __device__ __forceinline__ std::int64_t step() {
    return std::int64_t{gridDim.x} * (kRowBlock / kThreads);
  }
  /// The column of this thread's register e, and of its v-th vector.
  static __device__ __forceinline__ int column(int e) { return rank() * W + (e / W * kThreads * W + e % W); }
};

/// Blocks an SM should hold of a kernel that keeps a row of that shape in registers, as A.
template <class Shape, class A>
inline constexpr int kResident = Shape::elements <= 8 ? 4
                                 : sizeof(A) > 4      ? 1
                                                      : 2;

/// This thread's part of a row, in registers, as what it is computed in.
template <class A, class Shape> struct RowPart {
  A value[Shape::elements];

  /// What lies beyond the row becomes `beyond`.
  template <class T> __device__ __forceinline__ void load(const T* row, int n, A beyond) {
    constexpr int W = Shape::width;
#pragma unroll
    for (int e = 0; e < Shape::elements; e += W) {
      const int column = Shape::column(e);
      if (column < n) {
        const Vec<T, W> in = cuda::load<W>(row + column);
#pragma unroll
        for (int i = 0; i < W; ++i) value[e + i] = A(in[i]);
      } else {
#pragma unroll
        for (int i = 0; i < W; ++i) value[e + i] = beyond;
      }
    }
  }
  /// row[column] = f(value).
  template <class T, class F> __device__ __forceinline__ void store(T* row, int n, const F& f) const {
    constexpr int W = Shape::width;
#pragma unroll
    for (int e = 0; e < Shape::elements; e += W) {
      const int column = Shape::column(e);
      if (column >= n) continue;
      Vec<T, W> out;
#pragma unroll
      for (int i = 0; i < W; ++i) out[i] = T(f(value[e + i], e + i));
      cuda::store<W>(row + column, out);
    }
  }
  /// Folds f(value) over the elements of the row itself, then over the group. `start` is neutral.
  template <class Op, class F>
  __device__ __forceinline__ A fold(int n, A start, const Op& op, const F& f) const {
    A result = start;
#pragma unroll
    for (int e = 0; e < Shape::elements; ++e) {
      if (Shape::column(e) < n) result = op(result, f(value[e], e));
    }
    return group_fold<Shape::threads>(result, op);
  }
};

/// to[c] = f(from[c]..., c) for the n columns of a row in memory, rounded once.
template <class Shape, class To, class F, class... From>
__device__ __forceinline__ void map_row(To* to, std::int64_t n, const F& f, const From*... from) {
  constexpr int W = Shape::width;
  for (std::int64_t c = std::int64_t{Shape::rank()} * W; c < n; c += std::int64_t{Shape::threads} * W) {
    const std::tuple<Vec<From, W>...> in(load<W>(from + c)...);
    Vec<To, W> out;
#pragma unroll
    for (int i = 0; i < W; ++i)
      out[i] = To(std::apply([&](const auto&... x) { return f(Accumulate<From>(x[i])..., c + i); }, in));
    store<W>(to + c, out);
  }
}

/// Calls f.template operator()<Shape>() with how a row of n elements of T is best shared. `aligned`: every
/// row starts at a multiple of 16 bytes. (f64 is there for checks: an element at a time.)
template <class T, class F> void dispatch_row(std::int64_t n, bool aligned, const F& f) {
  const auto pick = [&]<int W, int kMany>() {
    if (n <= 8 * kWarp) return f.template operator()<RowShape<kWarp, 8, W>>();
    if (n <= kMany * kWarp) return f.template operator()<RowShape<kWarp, kMany, W>>();
    if (n <= kMany * kRowBlock) return f.template operator()<RowShape<kRowBlock, kMany, W>>();
    return f.template operator()<RowShape<kRowBlock, 0, W>>();
  };
  // An element at a time costs registers for addresses and bounds, too.
  if constexpr (sizeof(T) < 8) {
    if (aligned) return pick.template operator()<kVec<T>, 32>();
  }
  pick.template operator()<1, 16>();
}

/// Whether rows of n elements may be accessed 16 bytes at a time.
template <class... T> bool rows_aligned(std::int64_t n, const T*... rows) {
  return ((n % kVec<T> == 0 && aligned<kVec<T>>(rows)) && ...);
}

template <class Shape> unsigned row_blocks(const CudaContext& context, std::int64_t rows) {
  return row_blocks(context.multiprocessors(), rows, Shape::threads);
}

}  // namespace athanor::cuda
