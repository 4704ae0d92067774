#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor::kernels {

/// Comparisons of two elements. For the logical ones every nonzero value is true, NaN included.
enum class Predicate : std::uint8_t {
  equal,
  not_equal,
  less,
  less_equal,
  logical_and,
  logical_or,
  logical_xor
};

/// The predicate of two values; comparisons with NaN are false, except not_equal. NaN is true in the logical
/// ones.
template <class A> ATH_HD bool holds(Predicate predicate, A a, A b) {
  switch (predicate) {
    case Predicate::equal: return a == b;
    case Predicate::not_equal: return a != b;
    case Predicate::less: return a < b;
    case Predicate::less_equal: return a <= b;
    case Predicate::logical_and: return (a != A(0)) & (b != A(0));
    case Predicate::logical_or: return (a != A(0)) | (b != A(0));
    case Predicate::logical_xor: return (a != A(0)) != (b != A(0));
  }
  return false;
}

/// y = predicate(a, b). a and b have one dtype, any, broadcast to y's shape, any strides; y bool, dense.
/// Moves at most 2 elements and a byte per element.
ATH_KERNEL(void, compare, Predicate predicate, const Tensor& a, const Tensor& b, Out y);
ATH_MAP(compare, (Predicate, const Tensor& a, const Tensor& b, Out y), "compare", (a, b), (y))

}  // namespace athanor::kernels
