#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <math.h>
#include <stdlib.h>

#include "simt/emulator/cuda/device.h"

// CUDA's intrinsic functions. The fast ones (__expf, __fdividef, rsqrtf) are exact to the last rounding here
// and approximate on a GPU: tolerances are sized for the GPU.

// Always inline, so that the race build sees the load in the kernel.
template <class T> __forceinline__ T __ldg(const T* address) {
  return *address;
}

// A line each.
#define SIMT_FUNCTION(T, name, parameters, result) \
  inline T name parameters {                       \
    return result;                                 \
  }

// Bits.
SIMT_FUNCTION(int, __popc, (unsigned x), std::popcount(x))
SIMT_FUNCTION(int, __popcll, (unsigned long long x), std::popcount(x))
SIMT_FUNCTION(int, __clz, (int x), std::countl_zero(static_cast<unsigned>(x)))
SIMT_FUNCTION(int, __clzll, (long long x), std::countl_zero(static_cast<unsigned long long>(x)))
SIMT_FUNCTION(int, __ffs, (int x), __builtin_ffs(x))
SIMT_FUNCTION(unsigned, __umulhi, (unsigned a, unsigned b), static_cast<unsigned>(std::uint64_t{a} * b >> 32))
SIMT_FUNCTION(int, __mulhi, (int a, int b), static_cast<int>(std::int64_t{a} * b >> 32))

// The same bits as another type.
SIMT_FUNCTION(unsigned, __float_as_uint, (float x), std::bit_cast<unsigned>(x))
SIMT_FUNCTION(int, __float_as_int, (float x), std::bit_cast<int>(x))
SIMT_FUNCTION(float, __uint_as_float, (unsigned x), std::bit_cast<float>(x))
SIMT_FUNCTION(float, __int_as_float, (int x), std::bit_cast<float>(x))

// Conversions. Out of range they saturate, and NaN becomes 0, as on the device.
namespace simt {
template <class To, class From> To saturated(From x) {
  using Limits = std::numeric_limits<To>;
  if (std::isnan(x)) return 0;
  if (x <= static_cast<From>(Limits::min())) return Limits::min();
  return x >= static_cast<From>(Limits::max()) ? Limits::max() : static_cast<To>(x);
}
}  // namespace simt
#define SIMT_CONVERT(name, From, To)               \
  inline To __##name##_rn(From x) {                \
    return simt::saturated<To>(std::nearbyint(x)); \
  }                                                \
  inline To __##name##_rz(From x) {                \
    return simt::saturated<To>(std::trunc(x));     \
  }                                                \
  inline To __##name##_rd(From x) {                \
    return simt::saturated<To>(std::floor(x));     \
  }                                                \
  inline To __##name##_ru(From x) {                \
    return simt::saturated<To>(std::ceil(x));      \
  }
SIMT_CONVERT(float2int, float, int)
SIMT_CONVERT(float2uint, float, unsigned)
SIMT_CONVERT(float2ll, float, long long)
SIMT_CONVERT(double2int, double, int)
#undef SIMT_CONVERT

// Arithmetic.
SIMT_FUNCTION(float, rsqrtf, (float x), 1.0f / std::sqrt(x))
SIMT_FUNCTION(double, rsqrt, (double x), 1.0 / std::sqrt(x))
SIMT_FUNCTION(float, rsqrt, (float x), 1.0f / std::sqrt(x))
SIMT_FUNCTION(float, __fdividef, (float a, float b), a / b)

// The C library declares functions of these names for itself.
namespace simt {
SIMT_FUNCTION(float, fast_exp, (float x), std::exp(x))
SIMT_FUNCTION(float, fast_log, (float x), std::log(x))
SIMT_FUNCTION(float, fast_log2, (float x), std::log2(x))
SIMT_FUNCTION(float, fast_pow, (float x, float y), std::pow(x, y))
SIMT_FUNCTION(float, fast_sin, (float x), std::sin(x))
SIMT_FUNCTION(float, fast_cos, (float x), std::cos(x))
}  // namespace simt
#define __expf simt::fast_exp
#define __logf simt::fast_log
#define __log2f simt::fast_log2
#define __powf simt::fast_pow
#define __sinf simt::fast_sin
#define __cosf simt::fast_cos

#undef SIMT_FUNCTION

// max and min of numbers of any two types, as CUDA has them: of floating numbers, NaN loses.
#define SIMT_EXTREMUM(name, better)                           \
  template <class A, class B>                                 \
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B> \
  constexpr auto name(A a, B b) {                             \
    using T = std::common_type_t<A, B>;                       \
    const T x = static_cast<T>(a), y = static_cast<T>(b);     \
    return x better y || !(y == y) ? x : y;                   \
  }
SIMT_EXTREMUM(max, >)
SIMT_EXTREMUM(min, <)
#undef SIMT_EXTREMUM
