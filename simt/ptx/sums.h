#pragma once

#include <cstdint>
#include <cstring>

#include "simt/ptx/instructions.h"

// The arithmetic of tensor cores. The ISA demands products of full precision, sums of at least that of f32,
// and leaves the order of additions open.

namespace simt::ptx {

/// The numbers in the bits of a factor.
inline float number_of(MmaType type, std::uint32_t bits) {
  const auto float_of = [](std::uint32_t f32) {
    float value;
    std::memcpy(&value, &f32, sizeof(value));
    return value;
  };
  if (type == MmaType::tf32) return float_of(bits & ~0x1fffu);  // 10 bits of mantissa; the rest is ignored
  if (type == MmaType::bf16) return float_of(bits << 16);
  const std::uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero, or subnormal: mantissa times 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return float_of(sign | wide << 23 | mantissa << 13);
}

/// In which order the terms of a sum of `depth` products and of what was there before are added: numbers of
/// products, or `depth` for what was there. By SIMT_SUMS.
struct TermOrder {
  static constexpr int kMax = 17;
  int count;
  int terms[kMax];
};
TermOrder term_order(int depth);

/// c[n] += the sum over k of a[k] b[k][n], for so many columns. In double a product is exact, and its sum
/// with a float as good as exact; it is rounded to float.
template <int kMaxColumns>
void add_products(const TermOrder& order, int columns, float* c, const float* a,
                  const float (*b)[kMaxColumns]) {
  float sums[kMaxColumns];
  for (int i = 0; i < order.count; ++i) {
    const int k = order.terms[i];
    const bool product = k < order.count - 1;
    for (int n = 0; n < columns; ++n) {
      const double term = product ? double{a[k]} * double{b[k][n]} : double{c[n]};
      sums[n] = static_cast<float>(i == 0 ? term : double{sums[n]} + term);
    }
  }
  std::memcpy(c, sums, static_cast<std::size_t>(columns) * sizeof(float));
}

}  // namespace simt::ptx
