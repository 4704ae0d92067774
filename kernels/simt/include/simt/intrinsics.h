#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <math.h>
#include <simt/device.h>
#include <stdlib.h>

// CUDA's intrinsic functions. The fast ones (__expf, __fdividef, rsqrtf) are exact to the last rounding here
// and approximate on a GPU: tolerances are sized for the GPU.

// Loads and stores with a cache policy. Always inline, so that the race build sees them in the kernel.
#define ATH_SIMT_LOAD(name)                                     \
  template <class T> __forceinline__ T name(const T* address) { \
    return *address;                                            \
  }
ATH_SIMT_LOAD(__ldg)
ATH_SIMT_LOAD(__ldca)
ATH_SIMT_LOAD(__ldcg)
ATH_SIMT_LOAD(__ldcs)
ATH_SIMT_LOAD(__ldlu)
ATH_SIMT_LOAD(__ldcv)
#undef ATH_SIMT_LOAD
#define ATH_SIMT_STORE(name)                                                                \
  template <class T> __forceinline__ void name(T* address, std::type_identity_t<T> value) { \
    *address = value;                                                                       \
  }
ATH_SIMT_STORE(__stwb)
ATH_SIMT_STORE(__stcg)
ATH_SIMT_STORE(__stcs)
ATH_SIMT_STORE(__stwt)
#undef ATH_SIMT_STORE

// Bits.
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>(std::int64_t{a} * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}

// The same bits as another type.
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}

// Conversions. Out of range they saturate, and NaN becomes 0, as on the device.
namespace simt {
template <class To, class From> To saturated(From x) {
  using Limits = std::numeric_limits<To>;
  if (std::isnan(x)) return 0;
  if (x <= static_cast<From>(Limits::min())) return Limits::min();
  return x >= static_cast<From>(Limits::max()) ? Limits::max() : static_cast<To>(x);
}
}  // namespace simt
#define ATH_SIMT_CONVERT(name, From, To)           \
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
ATH_SIMT_CONVERT(float2int, float, int)
ATH_SIMT_CONVERT(float2uint, float, unsigned)
ATH_SIMT_CONVERT(float2ll, float, long long)
ATH_SIMT_CONVERT(double2int, double, int)
ATH_SIMT_CONVERT(double2ll, double, long long)
#undef ATH_SIMT_CONVERT
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
  return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
  return static_cast<float>(x);
}

// Arithmetic.
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
inline float rsqrt(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float __saturatef(float x) {
  return std::fmin(std::fmax(x, 0.0f), 1.0f);
}

// The C library declares functions of these names for itself.
namespace simt {
inline float fast_exp(float x) {
  return std::exp(x);
}
inline float fast_exp10(float x) {
  return std::pow(10.0f, x);
}
inline float fast_log(float x) {
  return std::log(x);
}
inline float fast_log2(float x) {
  return std::log2(x);
}
inline float fast_log10(float x) {
  return std::log10(x);
}
inline float fast_pow(float x, float y) {
  return std::pow(x, y);
}
inline float fast_sin(float x) {
  return std::sin(x);
}
inline float fast_cos(float x) {
  return std::cos(x);
}
inline float fast_tan(float x) {
  return std::tan(x);
}
}  // namespace simt
#define __expf simt::fast_exp
#define __exp10f simt::fast_exp10
#define __logf simt::fast_log
#define __log2f simt::fast_log2
#define __log10f simt::fast_log10
#define __powf simt::fast_pow
#define __sinf simt::fast_sin
#define __cosf simt::fast_cos
#define __tanf simt::fast_tan

// max and min of numbers of any two types, as CUDA has them: of floating numbers, NaN loses.
#define ATH_SIMT_EXTREMUM(name, better)                       \
  template <class A, class B>                                 \
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B> \
  constexpr auto name(A a, B b) {                             \
    using T = std::common_type_t<A, B>;                       \
    const T x = static_cast<T>(a), y = static_cast<T>(b);     \
    return x better y || !(y == y) ? x : y;                   \
  }
ATH_SIMT_EXTREMUM(max, >)
ATH_SIMT_EXTREMUM(min, <)
#undef ATH_SIMT_EXTREMUM
