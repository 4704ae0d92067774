#pragma once

#include "kernels/cuda/group.h"
#include "kernels/math.h"

// The two numbers a softmax needs of its row, in one read: the maximum, and the sum of exp(x - maximum),
// which is rescaled whenever the maximum grows. Source: Milakov and Gimelshein 2018, arXiv:1805.02867.

namespace athanor::cuda {

template <class A> struct MaxSum {
  A max, sum;

  static __device__ __forceinline__ MaxSum none() { return {-std::numeric_limits<A>::infinity(), A(0)}; }

  /// The sum of exp(x - larger), larger being at least max.
  __device__ __forceinline__ A rescaled(A larger) const {
    return max == larger ? sum : sum * math::exp(max - larger);
  }
  /// Takes W more elements.
  template <int W> __device__ __forceinline__ void add(const A (&x)[W]) {
    A larger = max;
#pragma unroll
    for (int i = 0; i < W; ++i) larger = MaxOrNan{}(larger, x[i]);
    if (larger == none().max) return;  // nothing but that so far
    A total = rescaled(larger);
#pragma unroll
    for (int i = 0; i < W; ++i) total += math::exp(x[i] - larger);
    *this = {larger, total};
  }
  /// Over the group; every thread gets the result.
  template <int kThreads> __device__ __forceinline__ MaxSum joined() const {
    const A larger = group_fold<kThreads>(max, MaxOrNan{});
    return {larger, group_sum<kThreads>(rescaled(larger))};
  }
};

struct JoinMaxSum {
  template <class A>
  __device__ __forceinline__ MaxSum<A> operator()(const MaxSum<A>& a, const MaxSum<A>& b) const {
    const A larger = MaxOrNan{}(a.max, b.max);
    return {larger, a.rescaled(larger) + b.rescaled(larger)};
  }
};

/// Of a row in memory, too long for registers.
template <class A, class Shape, class T>
__device__ __forceinline__ MaxSum<A> max_sum_of_row(const T* row, std::int64_t n) {
  constexpr int W = Shape::width;
  auto mine = MaxSum<A>::none();
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
  const A max = row.fold(n, MaxSum<A>::none().max, MaxOrNan{}, [](A x, int) { return x; });
  return {max, row.fold(n, A(0), Plus{}, [=](A x, int) { return math::exp(x - max); })};
}

}  // namespace athanor::cuda
