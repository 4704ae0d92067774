#pragma once

#include "kernels/cuda/group.h"
#include "kernels/math.h"

// The two numbers a softmax needs of its row, in one read: the maximum, and the sum of exp(x - maximum),
// which is rescaled whenever the maximum grows. Source: Milakov and Gimelshein 2018, arXiv:1805.02867.

namespace athanor::cuda {

template <class A> struct MaxSum {
  A max = -std::numeric_limits<A>::infinity(), sum = 0;

  /// Takes W more elements.
  template <int W> __device__ __forceinline__ void add(const A (&x)[W]) {
    A larger = max;
#pragma unroll
    for (int i = 0; i < W; ++i) larger = MaxOrNan{}(larger, x[i]);
    if (larger == -std::numeric_limits<A>::infinity()) return;  // nothing but that so far
    A total = larger == max ? sum : sum * math::exp(max - larger);
#pragma unroll
    for (int i = 0; i < W; ++i) total += math::exp(x[i] - larger);
    max = larger;
    sum = total;
  }

  /// Over the group; every thread gets the result.
  template <int kThreads> __device__ __forceinline__ MaxSum joined() const {
    MaxSum result;
    result.max = group_fold<kThreads>(max, MaxOrNan{});
    const bool same = max == result.max;
    result.sum = group_sum<kThreads>(same ? sum : sum * math::exp(max - result.max));
    return result;
  }
};

/// Of a row in memory, too long for registers.
template <class A, class Shape, class T>
__device__ __forceinline__ MaxSum<A> max_sum_of_row(const T* row, std::int64_t n) {
  constexpr int W = Shape::width;
  MaxSum<A> mine;
  for (std::int64_t column = std::int64_t{Shape::rank()} * W; column < n;
       column += std::int64_t{Shape::threads} * W) {
    const Vec<T, W> in = load<W>(row + column);
    A wide[W];
#pragma unroll
    for (int i = 0; i < W; ++i) wide[i] = A(in[i]);
    mine.add(wide);
  }
  return mine.template joined<Shape::threads>();
}

/// Of a row in registers.
template <class A, class Shape>
__device__ __forceinline__ MaxSum<A> max_sum_of_row(const RowPart<A, Shape>& row, int n) {
  MaxSum<A> result;
  result.max = row.fold(n, -std::numeric_limits<A>::infinity(), MaxOrNan{}, [](A x, int) { return x; });
  result.sum = row.fold(n, A(0), Plus{}, [&](A x, int) { return math::exp(x - result.max); });
  return result;
}

}  // namespace athanor::cuda
