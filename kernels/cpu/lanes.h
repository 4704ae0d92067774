#pragma once

#include <cstdint>

namespace athanor::cpu {

// Vectorised reductions with an order fixed in the source: element i belongs to lane i mod L, lanes are
// joined in halves, and L depends only on n. The bits do not depend on the vector width, and L partial sums
// have smaller rounding errors than one. Call these inside vectorize().

namespace detail {

template <int L, class A, class F, class Combine>
A fold_lanes(std::int64_t n, A start, const F& f, const Combine& combine) {
  A lane[L];  // GCC keeps it in registers; asked to unroll the loops, it compiles twice as long, to slower
              // code
  for (A& value : lane) value = start;
  std::int64_t i = 0;
  for (; i + L <= n; i += L) {
    for (int l = 0; l < L; ++l) lane[l] = combine(lane[l], f(i + l));
  }
  for (int l = 0; i < n; ++i, ++l) lane[l] = combine(lane[l], f(i));
  for (int width = L / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] = combine(lane[l], lane[l + width]);
  }
  return lane[0];
}

}  // namespace detail

/// combine(...combine(combine(start, f(0)), f(1))..., f(n - 1)) in 64, 16 or (below 16 elements) one lane;
/// `start` must be neutral, and combine associative but for rounding.
template <class A, class F, class Combine>
A reduce_lanes(std::int64_t n, A start, const F& f, const Combine& combine) {
  if (n >= 512) return detail::fold_lanes<64>(n, start, f, combine);
  if (n >= 16) return detail::fold_lanes<16>(n, start, f, combine);
  for (std::int64_t i = 0; i < n; ++i) start = combine(start, f(i));
  return start;
}

template <class A, class F> A sum_lanes(std::int64_t n, const F& f) {
  return reduce_lanes(n, A(0), f, [](A a, A b) { return a + b; });
}

/// The larger of a and b; NaN if either is NaN.
template <class A> A max_or_nan(A a, A b) {
  return (a > b) | (a != a) ? a : b;
}

/// The largest of f(0), ..., f(n - 1), n >= 1; NaN if any is NaN. (The order does not matter, and GCC turns
/// lanes in memory into vector maxima.)
template <class A, class F> A max_lanes(std::int64_t n, const F& f) {
  constexpr int kLanes = 64;
  A largest = f(0);
  std::int64_t i = 0;
  if (n >= kLanes) {
    A lane[kLanes];
    for (int l = 0; l < kLanes; ++l) lane[l] = f(l);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) {
        const A value = f(i + l), best = lane[l];
        lane[l] = (best > value) | (best != best) ? best : value;
      }
    }
    for (int l = 0; l < kLanes; ++l) largest = max_or_nan(largest, lane[l]);
  }
  for (; i < n; ++i) largest = max_or_nan(largest, f(i));
  return largest;
}

}  // namespace athanor::cpu
