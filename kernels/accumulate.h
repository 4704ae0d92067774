#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/context.h"
#include "kernels/numbers.h"
#include "kernels/step_rules.h"

// Elementwise work of collectives. Every function takes all dtypes but bool: f64 f32 f16 bf16 i64 i32 u8.

namespace athanor::kernels {

/// How values of several ranks are combined. Integers wrap; NaN stays NaN.
enum class Combine : std::uint8_t { sum, max };

/// Combines a and b in the type of their arithmetic: double, float, or the integer type itself. Commutative
/// to the bit, except for which NaN results.
template <Combine kind> struct CombineOp {
  template <class A> ATH_HD A operator()(A a, A b) const {
    if constexpr (kind == Combine::max) {
      return a > b || a != a ? a : b;
    } else if constexpr (std::is_integral_v<A>) {
      using Unsigned = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
      return a + b;
    }
  }
};

/// y = x combined with y; dense, of one dtype and size. Half types are combined in f32 and rounded once.
/// Moves 3 elements per element.
ATH_KERNEL(void, accumulate, Combine how, const Tensor& x, Out y);
ATH_MAP(accumulate, (Combine, const Tensor& x, Out y), "accumulate", (x, y), (y))

/// y[i] = x[0, i] combined with x[1, i], x[2, i], ... in that order; x [rows, n], rows >= 1, and y [n] dense,
/// of one dtype. Half types are combined in f32, rounded once at the end. Moves rows + 1 elements per result.
ATH_KERNEL(void, combine_rows, Combine how, const Tensor& x, Out y);
ATH_MAP(combine_rows, (Combine, const Tensor& x, Out y), "combine_rows", (x), (y))

/// total = the sum of squares of x in f64; x dense f32, f16 or bf16, total one f64 element. The order of the
/// sum depends on the size alone. The total is infinite or NaN exactly if an element is not finite.
ATH_KERNEL(void, sum_squares, const Tensor& x, Out total);

/// Does what measure_gradients() does, given sums of squares of parts of the gradients, which are added in
/// order; squares dense f64.
ATH_KERNEL(void, measure_squares, const Tensor& squares, const GradientLimits& limits);

}  // namespace athanor::kernels
