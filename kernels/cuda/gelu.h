#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/activate.h"
#include "kernels/math.h"
#include "simt/approximate.h"

namespace athanor::cuda {

/// GELU for results of 16 bits, in a quarter of Gelu's instructions: kernels that only move memory would
/// otherwise wait for arithmetic whose accuracy is rounded away.
///
/// Phi(-a), a = |x|, is 2^P(a), with P a minimax polynomial for log2 Phi(-a) up to a = 5.875: a relative
/// error below 2^-14.4. Beyond, it stays at its last value, 2^-28.8. So before they are rounded,
///
///     y    is within 2^-14 |x| Phi(-|x|) + 2^-26  of  x Phi(x): 1/8 of f16's last place, and
///     dx   within (2^-14 Phi(-|x|) + 2^-26) |dy|  of  dy (Phi(x) + x phi(x)).
///
/// Infinities and NaN give what Gelu gives, but the derivative of infinities is that of large numbers.
struct ShortGelu {
  static constexpr bool kFromOutput = false;
  static constexpr float kMost = 5.875f;

  /// |x| up to kMost; kMost of NaN.
  __device__ __forceinline__ static float bounded(float x) { return std::fmin(std::fabs(x), kMost); }
  /// Phi(-a).
  __device__ __forceinline__ static float tail(float a) {
    return simt::exp2_approximate(math::detail::polynomial(a, -1.0000565052f, -1.1502895355f, -0.46101373434f,
                                                           -0.051394470036f, 0.0072713014670f,
                                                           -0.00062362023164f, 2.3759801479e-5f));
  }
  __device__ __forceinline__ static float forward(float x) {
    const float a = bounded(x), half = 0.5f * x;
    // max(x, 0) - a Phi(-a). The maximum as a sum, which NaN and -infinity make NaN.
    return std::fma(-a, tail(a), half + std::fabs(half));
  }
  __device__ __forceinline__ static float backward(float x, float dy) {
    constexpr float kRoot = 0.84932180028801904f;  // of log2(e) / 2
    constexpr float kPeak = -1.3257480647361593f;  // log2(1 / sqrt(2 pi))
    const float a = bounded(x), scaled = kRoot * x;
    const float density = simt::exp2_approximate(std::fma(-scaled, scaled, kPeak));
    const float below = std::fma(-a, density, tail(a));  // at -a; at a it is 1 minus this
    return dy * (x < 0 ? below : 1 - below);
  }
};

/// The functor that computes Op where results are rounded to T.
template <class Op, class T>
using OpFor = std::conditional_t<std::is_same_v<Op, kernels::Gelu> && sizeof(T) == 2, ShortGelu, Op>;

/// Calls f.operator()<Op>() with the functor of an activation whose results are rounded to T.
template <class T, class F> void dispatch_activation(Activation activation, const F& f) {
  kernels::dispatch_activation(activation, [&]<class Op>() { f.template operator()<OpFor<Op, T>>(); });
}

}  // namespace athanor::cuda
