#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/context.h"
#include "kernels/numbers.h"
#include "kernels/step_rules.h"

// What collectives do to elements. Every function takes all dtypes but bool: f64 f32 f16 bf16 i64 i32 u8.

namespace athanor::kernels {

/// How the values of several ranks become one. Integers wrap; a NaN stays one.
enum class Combine : std::uint8_t { sum, max };

/// a and b made one, in the type arithmetic is done in: double, float, or the integer itself. Both orders
/// give the same bits (but for which NaN it is).
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

/// y = x combined with y; dense, of one dtype and size. Halves are combined in f32 and rounded once. Moves 3
/// elements per element.
template <class Context> void accumulate(Context& context, Combine how, const Tensor& x, const Tensor& y);

/// y[i] = x[0, i] combined with x[1, i], x[2, i], ... in that order; x [rows, n], rows >= 1, and y [n] dense,
/// of one dtype. Halves are combined in f32 and rounded once, at the end. Moves rows + 1 elements per result.
template <class Context> void combine_rows(Context& context, Combine how, const Tensor& x, const Tensor& y);

/// total = the sum of the squares of x in f64; x dense f32, f16 or bf16, total one f64 element. The order of
/// the sum depends on the size alone. Infinite or NaN where an element is not finite, and only then.
template <class Context> void sum_squares(Context& context, const Tensor& x, const Tensor& total);

/// What measure_gradients() does with the sum of the squares of all gradients, given as the sums of their
/// parts, which are added in order; squares dense f64.
template <class Context>
void measure_squares(Context& context, const Tensor& squares, const GradientLimits& limits);

}  // namespace athanor::kernels
