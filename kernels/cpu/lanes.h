#pragma once

#include <cstdint>

namespace athanor::cpu {

// A sum over a row is kept in this many lanes, element i in lane i % kLanes, folded by halves at the end: the
// compiler may use vectors of any width, and the bits stay the same.
inline constexpr int kLanes = 16;

/// Folds lanes with `combine`, upper half onto lower half.
template <class A, class F> A fold_lanes(A* lane, const F& combine) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] = combine(lane[l], lane[l + width]);
  }
  return lane[0];
}

/// combine(...combine(combine(start, f(0)), f(1))..., f(n - 1)) in lanes; `start` must be neutral.
template <class A, class F, class Combine>
A reduce_lanes(std::int64_t n, A start, const F& f, const Combine& combine) {
  A lane[kLanes];
  for (A& l : lane) l = start;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] = combine(lane[l], f(i + l));
  }
  for (int l = 0; i + l < n; ++l) lane[l] = combine(lane[l], f(i + l));
  return fold_lanes(lane, combine);
}

template <class A, class F> A sum_lanes(std::int64_t n, const F& f) {
  return reduce_lanes(n, A(0), f, [](A a, A b) { return a + b; });
}

}  // namespace athanor::cpu
