#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/half.h"

// Elementary functions without branches, tables or calls, so that the compiler vectorises loops over them.
// Every step is an IEEE operation, fused only by explicit fma, so the bits are the same on every CPU and for
// every vector width. The C library guarantees neither.
//
// Errors, in units in the last place of the result, against values of higher precision (tests/kernels):
//
//             exp    log    tanh   erf    sigmoid   expm1   log1p   pow
//   float     1.0    0.8    1.1    1.14   2.32      4.0     1.5     3.0
//   double    1.0    0.8    1.1    1.1    2.4       4.0     1.5     8.0
//
// Infinities, NaN, signed zeros, denormal arguments and denormal results are handled like std:: does.
//
// Errors of pow above 2 occur for results that are nearly 0 or infinite.
//
// Each function folds its argument into a short interval and evaluates a polynomial there. The polynomials
// are minimax fits (Remez exchange on the stated interval, weighted for relative error of the result), made
// in 60-digit arithmetic and rounded; their own error is below 1/8 ulp.

namespace athanor::math {
namespace detail {

template <class A> struct Format;
template <> struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int kFraction = 23, kBias = 127;
  static constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;  // n * high is exact
  static constexpr float kExpLow = -104.0f, kExpHigh = 89.0f;                 // beyond: 0 and infinity
};
template <> struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int kFraction = 52, kBias = 1023;
  static constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kExpLow = -746.0, kExpHigh = 710.0;
};

/// c0 + c1 x + c2 x^2 + ..., by Horner's rule.
template <class A> ATH_HD constexpr A polynomial(A, A last) {
  return last;
}
template <class A, class... Rest> ATH_HD inline A polynomial(A x, A first, Rest... rest) {
  return std::fma(x, polynomial<A>(x, static_cast<A>(rest)...), first);
}

/// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2.
template <class A> ATH_HD inline A exp_tail(A r) {
  if constexpr (std::is_same_v<A, float>) {
    return polynomial(r, 0.499999934f, 0.166665206f, 0.041668388f, 0.00836871716f, 0.00138146025f);
  } else {
    return polynomial(r, 0.5, 0x1.555555555555bp-3, 0x1.5555555555503p-5, 0x1.111111110ec5ep-7,
                      0x1.6c16c16c3048cp-10, 0x1.a01a01b37e289p-13, 0x1.a01a0136902acp-16,
                      0x1.71ddf020da76dp-19, 0x1.27e5b44362ffdp-22, 0x1.af6be7f29f015p-26,
                      0x1.1e3d3365b9aa5p-29);
  }
}

/// (2 atanh(s) - 2 s) / s^3 in z = s^2, for |s| <= (sqrt(2) - 1) / (sqrt(2) + 1).
template <class A> ATH_HD inline A log_tail(A z) {
  if constexpr (std::is_same_v<A, float>) {
    return polynomial(z, 0.666667767f, 0.399774954f, 0.298731049f);
  } else {
    return polynomial(z, 0x1.5555555555555p-1, 0x1.9999999999e06p-2, 0x1.249249242aafbp-2,
                      0x1.c71c7259aa01fp-3, 0x1.745cddff6fc64p-3, 0x1.3b20b4de122cdp-3, 0x1.0f5bf60746c5ep-3,
                      0x1.0f6a9a9b7c002p-3);
  }
}

/// (tanh(x) - x) / x^3 in z = x^2, for |x| <= 0.8.
template <class A> ATH_HD inline A tanh_tail(A z) {
  if constexpr (std::is_same_v<A, float>) {
    return polynomial(z, -0.333333f, 0.13332221f, -0.05385233f, 0.02130299f, -0.0074095563f, 0.0015847557f);
  } else {
    return polynomial(z, -0x1.5555555555521p-2, 0x1.111111110deb6p-3, -0x1.ba1ba1b7f7c75p-5,
                      0x1.664f4824a6bc8p-6, -0x1.226e2bcce7687p-7, 0x1.d6d28f53f67c5p-9,
                      -0x1.7d950c5f9755ep-10, 0x1.34e55bf1419afp-11, -0x1.f061007e4241dp-13,
                      0x1.81a4935ef9255p-14, -0x1.0cee21dbfe926p-15, 0x1.1ee58293b0621p-17,
                      -0x1.4b33ba07916b0p-20);
  }
}

/// erf(x) / x - 1 in z = x^2, for |x| <= 1.
template <class A> ATH_HD inline A erf_tail(A z) {
  if constexpr (std::is_same_v<A, float>) {
    return polynomial(z, 0.128379166f, -0.376126271f, 0.112836002f, -0.0268544456f, 0.00518953646f,
                      -0.00080208457f, 7.88911916e-5f);
  } else {
    return polynomial(z, 0x1.06eba8214db69p-3, -0x1.812746b0379e6p-2, 0x1.ce2f21a042b34p-4,
                      -0x1.b82ce31284f38p-6, 0x1.565bcd0dbd921p-8, -0x1.c02db3db49761p-11,
                      0x1.f9a321e4b84e9p-14, -0x1.f4d1e434bbfbfp-17, 0x1.b9df305caca82p-20,
                      -0x1.5f1f40fae8889p-23, 0x1.f7b99d7c497a2p-27, -0x1.38ac229020808p-30,
                      0x1.062759c3f4196p-34);
  }
}

/// log(1 - erf(1 + t)), for t in [0, 3] (float) or [0, 5] (double), where erf has reached 1.
template <class A> ATH_HD inline A log_erfc(A t) {
  if constexpr (std::is_same_v<A, float>) {
    return polynomial(t, -1.84960551f, -2.63896757f, -0.843106179f, -0.0415693643f, 0.0100642727f,
                      -0.00203962362f, 0.00031199115f, -3.06880885e-5f, 1.39513944e-6f);
  } else {
    return polynomial(
        t, -0x1.d97fbf27aa2a1p+0, -0x1.51c9b0006c23ap+1, -0x1.afabc11a291adp-1, -0x1.5477f09c73cb8p-5,
        0x1.48c9d402b78acp-7, -0x1.033f689f804fep-9, 0x1.f1b47b2f3a261p-13, 0x1.b8c4024fe9892p-16,
        -0x1.c764cb0f1c1f4p-16, 0x1.41771cad99258p-17, -0x1.0f3a5806aa501p-19, 0x1.b8c3eea21de3fp-24,
        0x1.156908f880235p-23, -0x1.30ecef5f56d34p-24, 0x1.94b5d4f8c8d27p-26, -0x1.917a1d0417332p-28,
        0x1.37779570a2dccp-30, -0x1.7b2df008f88b5p-33, 0x1.640f19227ebcep-36, -0x1.f21bf20866811p-40,
        0x1.e86d4533e4176p-44, -0x1.2b34f3ea36ffap-48, 0x1.584fd2edc1b8dp-54);
  }
}

}  // namespace detail

namespace detail {

/// e^x = power 2^n, with x = n ln(2) + r and power = e^r.
template <class A> struct Exponential {
  A power;
  typename Format<A>::Bits n;  // may be negative, as an unsigned number

  ATH_HD explicit Exponential(A x) {
    using F = Format<A>;
    using Bits = typename F::Bits;
    // Adding 1.5 * 2^fraction rounds to an integer in the low bits.
    constexpr A kRound = static_cast<A>(Bits{3} << (F::kFraction - 1));
    constexpr A kLog2E = static_cast<A>(1.44269504088896340736L);
    const A shifted = std::fma(x, kLog2E, kRound);
    const A whole = shifted - kRound;
    const A r = std::fma(whole, -F::kLn2Low, std::fma(whole, -F::kLn2High, x));
    power = A(1) + std::fma(r * r, exp_tail(r), r);
    n = std::bit_cast<Bits>(shifted) - std::bit_cast<Bits>(kRound);
  }
};

}  // namespace detail

/// e^x
template <class A> ATH_HD inline A exp(A x) {
  using F = detail::Format<A>;
  using Bits = typename F::Bits;
  A bounded = x < F::kExpLow ? F::kExpLow : x;
  bounded = bounded > F::kExpHigh ? F::kExpHigh : bounded;  // NaN passes both
  const detail::Exponential<A> e(bounded);

  // 2^n in two factors, each a normal number, so that denormal results are rounded once.
  const Bits twice = e.n + Bits{2 * F::kBias};
  const Bits half = twice >> 1;
  return e.power * std::bit_cast<A>(half << F::kFraction) * std::bit_cast<A>((twice - half) << F::kFraction);
}

namespace detail {

/// x = 2^k (1 + f), with 1 + f in [sqrt(1/2), sqrt(2)), for a finite x > 0.
template <class A> struct Split {
  A k, f;

  ATH_HD explicit Split(A x) {
    using F = Format<A>;
    using Bits = typename F::Bits;
    constexpr Bits kOne = Bits{F::kBias} << F::kFraction;
    constexpr Bits kRootHalf = std::bit_cast<Bits>(static_cast<A>(0.70710678118654752440L));
    constexpr A kInteger = static_cast<A>(Bits{1} << F::kFraction);  // its low bits hold an integer
    constexpr A kLift = static_cast<A>(Bits{1} << (F::kFraction + 2));

    const bool denormal = x < std::numeric_limits<A>::min();
    const A lifted = x * kLift;
    const A normal = denormal ? lifted : x;
    const A base = denormal ? kInteger + A(F::kBias + F::kFraction + 2) : kInteger + A(F::kBias);
    const Bits bits = std::bit_cast<Bits>(normal) + (kOne - kRootHalf);
    k = std::bit_cast<A>((bits >> F::kFraction) | std::bit_cast<Bits>(kInteger)) - base;
    f = std::bit_cast<A>((bits & ((Bits{1} << F::kFraction) - 1)) + kRootHalf) - A(1);
  }
};

}  // namespace detail

/// Natural logarithm, as k ln(2) + log(1 + f) with log(1 + f) = 2 atanh(f / (2 + f)). -infinity at zero, NaN
/// below.
template <class A> ATH_HD inline A log(A x) {
  using F = detail::Format<A>;
  constexpr A kInfinity = std::numeric_limits<A>::infinity();
  const detail::Split<A> split(x);
  const A k = split.k, f = split.f;
  const A s = f / (A(2) + f);
  const A z = s * s;
  const A half_square = A(0.5) * f * f;
  const A correction = half_square - std::fma(s, half_square + z * detail::log_tail(z), k * F::kLn2Low);
  const A finite = std::fma(k, F::kLn2High, f - correction);

  const A below = x == A(0) ? -kInfinity : std::numeric_limits<A>::quiet_NaN();
  const A above = x < kInfinity ? finite : x;
  return x > A(0) ? above : below;
}

/// e^x - 1, without cancellation near zero.
template <class A> ATH_HD inline A expm1(A x) {
  const A near = std::fma(x * x, detail::exp_tail(x), x);
  const A far = exp(x) - A(1);
  return std::fabs(x) < A(0.34375) ? near : far;  // ln(2) / 2, where exp_tail() ends
}

/// log(1 + x), without cancellation near zero: the logarithm of the rounded sum, and what rounding it lost.
template <class A> ATH_HD inline A log1p(A x) {
  const A sum = A(1) + x;
  const A lost = x - (sum - A(1));
  const A finite = log(sum) + lost / sum;
  return sum > A(0) && sum < std::numeric_limits<A>::infinity() ? finite : log(sum);
}

namespace detail {

/// first e^(x + low) second, for |low| an ulp of x. 2^n is in two factors, each a normal number, between
/// which the others come: only a result that is itself too large or too small overflows or vanishes, not e^x
/// alone.
template <class A> ATH_HD inline A scaled_exp(A x, A low, A first, A second) {
  using F = Format<A>;
  using Bits = typename F::Bits;
  constexpr A kMost = std::is_same_v<A, float> ? A(174) : A(1416);  // (2 bias - 2) ln(2)
  const A bounded = x < -kMost ? -kMost : x > kMost ? kMost : x;    // NaN passes both
  const Exponential<A> e(bounded);
  const A power = std::fma(e.power, bounded == x ? low : A(0), e.power);
  const Bits twice = e.n + Bits{2 * F::kBias};
  const Bits half = twice >> 1;
  return first * std::bit_cast<A>(half << F::kFraction) * second * power *
         std::bit_cast<A>((twice - half) << F::kFraction);
}

/// first x^y second for x >= 0, as e^(y log(x)). The logarithm is a pair of numbers, as in log(), since y
/// amplifies its error; only the tail of its series has single accuracy.
template <class A> ATH_HD inline A scaled_pow_of_magnitude(A x, A y, A first, A second) {
  using F = Format<A>;
  constexpr A kInfinity = std::numeric_limits<A>::infinity();
  const Split<A> split(x);
  const A k = split.k, f = split.f;
  const A d = A(2) + f, d_low = f - (d - A(2));
  const A s = f / d, s_low = (std::fma(-s, d, f) - s * d_low) / d;
  const A z = s * s, z_low = std::fma(s, s, -z) + A(2) * s * s_low;
  const A cube = s * z, cube_low = std::fma(s, z, -cube) + s * z_low + s_low * z;
  const A tail = log_tail(z), t = cube * tail, t_low = std::fma(cube, tail, -t) + cube_low * tail;
  // Fast2Sum twice: each number added is 0 or smaller than what it is added to.
  const A large = k * F::kLn2High;
  const A sum = large + A(2) * s, sum_low = A(2) * s - (sum - large);
  const A total = sum + t, total_low = t - (total - sum);
  const A small = std::fma(k, F::kLn2Low, std::fma(A(2), s_low, t_low + total_low + sum_low));
  const A high = total + small, low = small - (high - total);

  const A exponent = y * high;
  const A exponent_low = std::fma(y, low, std::fma(y, high, -exponent));
  const A finite = scaled_exp(exponent, exponent_low, first, second);

  const A at_end = (x < A(1)) == (y < A(0)) ? kInfinity : A(0);
  const bool is_one = y == A(0) || x == A(1);
  const bool ends = x == A(0) || x == kInfinity || std::fabs(y) == kInfinity;
  return is_one ? first * second : ends ? first * at_end * second : finite;
}

}  // namespace detail

/// first x^y second, where x^y alone may overflow or vanish.
template <class A> ATH_HD inline A scaled_pow(A x, A y, A first, A second) {
  constexpr A kNaN = std::numeric_limits<A>::quiet_NaN(), kInfinity = std::numeric_limits<A>::infinity();
  const A magnitude = detail::scaled_pow_of_magnitude(std::fabs(x), y, first, second);
  const bool integer = std::floor(y) == y, odd = integer && std::floor(A(0.5) * y) * A(2) != y;
  const A signed_power = odd ? magnitude * std::copysign(A(1), x) : magnitude;
  const A real = x < A(0) && x > -kInfinity && !integer ? kNaN : signed_power;
  const bool nan = (x != x || y != y) && y != A(0) && x != A(1);
  return nan ? kNaN : y == A(1) ? first * x * second : real;
}

/// x^y, with the special cases of IEEE 754: x if y = 1; 1 if y = 0 or x = 1, whatever the other; NaN for a
/// negative x and a non-integer y.
template <class A> ATH_HD inline A pow(A x, A y) {
  return scaled_pow(x, y, A(1), A(1));
}

/// Hyperbolic tangent: a polynomial near zero, 1 - 2 / (e^2x + 1) elsewhere.
template <class A> ATH_HD inline A tanh(A x) {
  const A a = std::fabs(x);
  const A z = a * a;
  const A near = std::fma(a * z, detail::tanh_tail(z), a);
  // tanh is 1 from 20 on; below, e^2a is a normal number, so exp()'s handling of extremes is not needed.
  using F = detail::Format<A>;
  const detail::Exponential<A> e(a > A(20) ? A(40) : a + a);
  const A squared = e.power * std::bit_cast<A>((e.n + typename F::Bits{F::kBias}) << F::kFraction);
  const A far = A(1) - A(2) / (squared + A(1));
  return std::copysign(a < A(0.8) ? near : far, x);
}

/// Error function, 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x.
template <class A> ATH_HD inline A erf(A x) {
  constexpr A kSaturated = std::is_same_v<A, float> ? A(4) : A(6);
  const A a = std::fabs(x);
  const A near = std::fma(a, detail::erf_tail(a * a), a);
  const A bounded = a > kSaturated ? kSaturated : a;  // NaN passes
  const A far = A(1) - exp(detail::log_erfc(bounded - A(1)));
  return std::copysign(a < A(1) ? near : far, x);
}

/// 1 / (1 + e^-x), without overflow, and accurate in both tails.
template <class A> ATH_HD inline A sigmoid(A x) {
  const A e = exp(-std::fabs(x));
  return (x < A(0) ? e : A(1)) / (A(1) + e);
}

}  // namespace athanor::math
