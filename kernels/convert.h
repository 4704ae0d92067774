#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/half.h"

// Conversion between element types, written once for every backend:
// - between floating types: one rounding, to nearest even;
// - floating to integer: towards zero; saturates, and NaN becomes 0;
// - between integers: the low bits, as in C++;
// - to bool: true unless zero (NaN is true); from bool: 0 or 1.

namespace athanor::kernels {
namespace detail {

/// v as a float, rounded to odd: the last bit is set if v has more bits. Rounding that to 16 bits gives the
/// same result as rounding v once.
ATH_HD inline float round_to_odd(double v) {
  const float nearest = static_cast<float>(v);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const double back = static_cast<double>(nearest);
  const bool away = (back > v) == (v > 0) && back != v;  // beyond v: one step back truncates
  const std::uint32_t truncated = away ? bits - 1 : bits;
  return std::bit_cast<float>(back == v ? bits : truncated | 1u);
}

/// v as a double, rounded to odd if it has more than 53 bits.
ATH_HD inline double round_to_odd(std::int64_t v) {
  const bool wide = v > (std::int64_t{1} << 53) || v < -(std::int64_t{1} << 53);
  const std::int64_t sticky = (v & 0xffff) != 0 ? 0x8000 : 0;
  return static_cast<double>(wide ? (v & ~std::int64_t{0xffff}) | sticky : v);
}

template <class To, class From> ATH_HD inline To saturate(From v) {
  constexpr From kEnd = From(std::numeric_limits<To>::max() / 2 + 1) * From(2);  // exact: a power of two
  constexpr From kBegin = From(std::numeric_limits<To>::min());
  const To inside = static_cast<To>(v >= kBegin && v < kEnd ? v : From(0));
  const To low = v < kBegin ? std::numeric_limits<To>::min() : inside;
  return v >= kEnd ? std::numeric_limits<To>::max() : low;
}

}  // namespace detail

/// value as another element type: rounded to nearest-even among floating types; to integers truncated and
/// clamped, NaN becomes 0.
template <class To, class From> ATH_HD inline To convert(From value) {
  constexpr bool kHalfTo = std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>;
  constexpr bool kHalfFrom = std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kHalfFrom) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (kHalfTo && (std::is_same_v<From, double> || std::is_same_v<From, std::int32_t>)) {
    return To(detail::round_to_odd(static_cast<double>(value)));
  } else if constexpr (kHalfTo && std::is_same_v<From, std::int64_t>) {
    return To(detail::round_to_odd(detail::round_to_odd(value)));
  } else if constexpr (kHalfTo) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return detail::saturate<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace athanor::kernels
