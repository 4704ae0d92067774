#pragma once

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

// What instructions of PTX compute, where C++ has no operator for it; sections of the PTX ISA, 9.7.1 to
// 9.7.9, have the names of the functions' comments. Registers of a type of bits are integers without a sign.

namespace simt::ptx {

using pred = bool;
using b8 = std::uint8_t;
using b16 = std::uint16_t;
using b32 = std::uint32_t;
using b64 = std::uint64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;

/// The same bits as another type.
template <class To, class From> constexpr To as(From value) {
  return std::bit_cast<To>(value);
}
/// A float's register as one of bits, for instructions that take any.
inline b32* bits_of(f32& value) {
  return reinterpret_cast<b32*>(&value);
}

template <class T> inline constexpr unsigned kBits = 8 * sizeof(T);

// ---- integers

/// div, rem: by zero the result is any; here all ones, and the dividend. The least number by -1 does not
/// trap.
template <class T> constexpr T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - std::make_unsigned_t<T>(a));
  return static_cast<T>(a / b);
}
template <class T> constexpr T remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

/// mul.hi: the upper half of the product.
template <class T> constexpr T multiply_high(T a, T b) {
  __extension__ using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> kBits<T>);
}

/// dp2a: c and the products of the two halves of a with the lower, or the upper, two bytes of b.
constexpr u32 dot_of_two_lo(u32 a, u32 b, u32 c) {
  return c + (a & 0xffff) * (b & 255) + (a >> 16) * (b >> 8 & 255);
}
constexpr u32 dot_of_two_hi(u32 a, u32 b, u32 c) {
  return dot_of_two_lo(a, b >> 16, c);
}

/// dp4a.u32.s32: c and the products of the four bytes of a, without a sign, with those of b, with one.
constexpr s32 dot_of_four(u32 a, s32 b, s32 c) {
  u32 sum = static_cast<u32>(c);
  for (u32 i = 0; i < 4; ++i) {
    const u32 byte = static_cast<u32>(b) >> 8 * i & 255;
    sum += (a >> 8 * i & 255) * (byte < 128 ? byte : byte - 256);
  }
  return static_cast<s32>(sum);
}

/// shl, shr: distances are clamped to the width; shr of a signed type shifts the sign in.
template <class T> constexpr T shift_left(T a, u32 distance) {
  return distance >= kBits<T> ? T{0} : static_cast<T>(a << distance);
}
template <class T> constexpr T shift_right(T a, u32 distance) {
  if (distance >= kBits<T>) return std::is_signed_v<T> && a < 0 ? T(-1) : T(0);
  return static_cast<T>(a >> distance);
}
/// bfi: the lowest `length` bits of a, at `position` of b.
template <class T> constexpr T field_inserted(T a, T b, u32 position, u32 length) {
  position &= 255, length &= 255;
  const T bits = length >= kBits<T> ? ~T{0} : static_cast<T>((T{1} << length) - 1);
  return (b & ~shift_left(bits, position)) | shift_left<T>(a & bits, position);
}

/// bfind: the position of the highest one, of a negative number the highest zero; -1: there is none.
/// .shiftamt: how far it is from the top.
template <class T> constexpr u32 highest_bit(T a, bool shift_amount) {
  using U = std::make_unsigned_t<T>;
  const U bits = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
  if (bits == 0) return ~0u;
  const auto from_top = static_cast<u32>(std::countl_zero(bits));
  return shift_amount ? from_top : kBits<T> - 1 - from_top;
}
/// brev.
template <class T> constexpr T reversed(T a) {
  T result = 0;
  for (u32 i = 0; i < kBits<T>; ++i) result = static_cast<T>(result << 1 | (a >> i & 1));
  return result;
}

/// prmt: four of the eight bytes of a and b, by the four digits of the selector; bit 3 of one spreads the
/// byte's sign.
constexpr u32 bytes_permuted(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{b} << 32 | a;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 digit = selector >> 4 * i & 15;
    const u32 byte = bytes >> 8 * (digit & 7) & 255;
    result |= (digit & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return result;
}

// ---- floats

// Of two overloads, which take the compiler a tenth of the time that those of std do.
inline f32 absolute(f32 a) {
  return __builtin_fabsf(a);
}
inline f64 absolute(f64 a) {
  return __builtin_fabs(a);
}
inline f32 square_root(f32 a) {
  return __builtin_sqrtf(a);
}
inline f64 square_root(f64 a) {
  return __builtin_sqrt(a);
}
inline f32 truncated(f32 a) {
  return __builtin_truncf(a);
}
inline f64 truncated(f64 a) {
  return __builtin_trunc(a);
}
inline f32 to_nearest(f32 a) {
  return __builtin_nearbyintf(a);
}
inline f64 to_nearest(f64 a) {
  return __builtin_nearbyint(a);
}
inline f32 floor_of(f32 a) {
  return __builtin_floorf(a);
}
inline f64 floor_of(f64 a) {
  return __builtin_floor(a);
}
inline f32 ceiling(f32 a) {
  return __builtin_ceilf(a);
}
inline f64 ceiling(f64 a) {
  return __builtin_ceil(a);
}
inline f32 copy_sign(f32 a, f32 b) {
  return __builtin_copysignf(a, b);
}
inline f64 copy_sign(f64 a, f64 b) {
  return __builtin_copysign(a, b);
}
inline f32 fma(f32 a, f32 b, f32 c) {
  return __builtin_fmaf(a, b, c);
}
inline f64 fma(f64 a, f64 b, f64 c) {
  return __builtin_fma(a, b, c);
}

/// min, max: the other where one is NaN; -0 is less than 0.
template <class T> T minimum(T a, T b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
template <class T> T maximum(T a, T b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}

/// .ftz: no subnormal numbers.
inline f32 flushed(f32 x) {
  return std::fabs(x) < std::numeric_limits<f32>::min() ? std::copysign(0.0f, x) : x;
}
/// rcp.approx.ftz.f64: of the upper half of the number's bits, which is the upper half of the result's.
inline f64 reciprocal_of_high_word(f64 x) {
  constexpr u64 kHigh = ~u64{0} << 32;
  const f64 high = as<f64>(as<u64>(x) & kHigh);
  const f64 flushed_high =
      std::fabs(high) < std::numeric_limits<f64>::min() ? std::copysign(0.0, high) : high;
  return as<f64>(as<u64>(1 / flushed_high) & kHigh);
}

/// .rz, .rm, .rp: towards zero, down, up. Volatile, so that nothing is computed in another mode.
enum class Rounding { rz = FE_TOWARDZERO, rm = FE_DOWNWARD, rp = FE_UPWARD };
template <class F> auto rounded(Rounding rounding, F&& f) {
  std::fesetround(static_cast<int>(rounding));
  volatile auto result = f();
  std::fesetround(FE_TONEAREST);
  return static_cast<std::remove_volatile_t<decltype(result)>>(result);
}
template <class T> T fma_rounded(Rounding rounding, T a, T b, T c) {
  volatile T x = a, y = b, z = c;
  return rounded(rounding, [&] { return std::fma(x, y, z); });
}

/// cvt from a float, which is whole by now: the nearest number that the type has. NaN: zero, or of 64 bits on
/// either side the highest bit alone.
template <class To, class From> To to_integer(From x) {
  constexpr From kEnd =
      std::is_signed_v<To> ? From(u64{1} << (kBits<To> - 1)) : 2 * From(u64{1} << (kBits<To> - 1));
  if (x != x) return sizeof(To) == 8 || sizeof(From) == 8 ? static_cast<To>(To{1} << (kBits<To> - 1)) : To{0};
  if (x >= kEnd) return std::numeric_limits<To>::max();
  if (x <= (std::is_signed_v<To> ? -kEnd : From(0))) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}

/// cvt.rn.f16, cvt.rn.bf16 and back; NaN becomes 0x7fff.
template <class T> b16 to_f16(T x) {
  return x != x ? b16{0x7fff} : as<b16>(static_cast<_Float16>(x));
}
inline f32 from_f16(b16 bits) {
  return static_cast<f32>(as<_Float16>(bits));
}
inline b16 to_bf16(f32 x) {
  const u32 bits = as<u32>(x);
  return x != x ? b16{0x7fff} : static_cast<b16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline f32 from_bf16(b16 bits) {
  return as<f32>(u32{bits} << 16);
}
/// cvt.rna.tf32: to ten bits after the point, ties away from zero.
inline u32 to_tf32(f32 x) {
  if (std::isnan(x)) return 0x7fffffff;
  return std::isinf(x) ? as<u32>(x) : (as<u32>(x) + 0x1000) & ~0x1fffu;
}

}  // namespace simt::ptx
