#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor::kernels {

/// An element and its position along the axis.
template <class A> struct Ranked {
  A value;
  std::int64_t index;
};

/// Whether a precedes b among the largest (or smallest) elements: NaN is the largest, and of equal elements
/// the one with the smaller index comes first. This is a strict total order.
template <class A> ATH_HD bool comes_before(const Ranked<A>& a, const Ranked<A>& b, bool largest) {
  const bool nan = a.value != a.value, other_nan = b.value != b.value;
  if (nan != other_nan) return nan == largest;
  if (nan || a.value == b.value) return a.index < b.index;
  return (a.value > b.value) == largest;
}

/// The k largest (or smallest) elements along an axis, 0 < k <= its size, in the order of comes_before(), and
/// their indices (i64). x of any number type, dense; values and index dense, of x's shape with k along the
/// axis.
ATH_KERNEL(void, topk, const Tensor& x, int axis, bool largest, Out values, Out index);
ATH_MAP(topk, (const Tensor& x, int, bool, Out values, Out index), "topk", (x), (values, index))

}  // namespace athanor::kernels
