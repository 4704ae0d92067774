#pragma once

#include "tests/random_ops/tape.h"

namespace athanor::random_ops {

/// What the case's dtype is computed and kept in.
struct Precision {
  Real epsilon = 0x1p-23L;  ///< of one rounding in sums and functions: f32's, or f64's
  Real smallest = 0x1p-149L, largest = 0x1.fffffep127L;  ///< of sums and functions
  Real kept = 1;  ///< roundings of that size in one of the dtype itself, in which results are kept
  Real largest_kept = 0x1.fffffep127L;
};

/// That of the case at hand.
inline Precision& precision() {
  static Precision of_case;
  return of_case;
}

}  // namespace athanor::random_ops
