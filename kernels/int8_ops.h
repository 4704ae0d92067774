#pragma once

#include <bit>
#include <cstdint>

#include "kernels/int8.h"

// How 8-bit ops round, for every backend.

namespace athanor::kernels {

/// v rounded to the nearest integer, of two the even one. |v| < 2^22.
ATH_HD inline std::int32_t nearest_integer(float v) {
  constexpr float kRound = 3 << 22;  // 1.5 x 2^23: a sum with it has no bits for a fraction
  return std::bit_cast<std::int32_t>(v + kRound) - std::bit_cast<std::int32_t>(kRound);
}

/// clamp(round(v) + zero, low, high); NaN becomes `low`.
class RoundToU8 {
 public:
  explicit RoundToU8(const Rounding& rounding)
      : low_(static_cast<float>(rounding.low - rounding.zero)),
        high_(static_cast<float>(rounding.high - rounding.zero)),
        zero_(rounding.zero) {}

  ATH_HD std::uint8_t operator()(float v) const {
    // The bounds are integers, so rounding may follow them, and what is rounded is small.
    const float above = v > low_ ? v : low_, within = above < high_ ? above : high_;
    return static_cast<std::uint8_t>(nearest_integer(within) + zero_);
  }

 private:
  float low_, high_;
  std::int32_t zero_;
};

/// As `quantize` stores x.
ATH_HD inline std::uint8_t quantized(float x, float scale, const RoundToU8& round) {
  const float v = x / scale;
  return round(v == v ? v : 0.0f);
}

}  // namespace athanor::kernels
