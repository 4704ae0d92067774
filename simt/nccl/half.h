#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace simt {

/// IEEE binary16: rounds to nearest, ties to even. Not fast.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const float size = std::fabs(value);
    unsigned magnitude = 0x7e00;            // NaN
    if (size >= 65520) magnitude = 0x7c00;  // more than half way from the largest, 65504, to 2^16
    if (size < 65520) {
      const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
      // In units of the last place: 1024 to 2048, and less where it is subnormal.
      const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(size, 10 - exponent)));
      magnitude = (static_cast<unsigned>(exponent + 14) << 10) + units;
    }
    bits = static_cast<std::uint16_t>(magnitude | (std::signbit(value) ? 0x8000u : 0u));
  }
  explicit operator float() const {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    if (exponent == 0) size = std::ldexp(static_cast<float>(fraction), -24);
    if (exponent == 31) {
      using Limits = std::numeric_limits<float>;
      size = fraction == 0 ? Limits::infinity() : Limits::quiet_NaN();
    }
    return (bits & 0x8000) != 0 ? -size : size;
  }
};

/// The upper half of a float's bits: rounds to nearest, ties to even.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (raw + 0x7fff + (raw >> 16 & 1)) >> 16;
    bits = static_cast<std::uint16_t>(std::isnan(value) ? raw >> 16 | 0x40 : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

}  // namespace simt
