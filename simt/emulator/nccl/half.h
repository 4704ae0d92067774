#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace simt {

/// IEEE binary16: rounds to nearest, ties to even.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) {}
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
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
