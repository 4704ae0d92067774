#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/convert.h"

namespace athanor::kernels {

/// The largest T below `high`, so that rounding up never reaches it.
template <class T> inline T largest_below(double high) {
  T value = convert<T>(high);
  if (static_cast<double>(convert<double>(value)) < high) return value;
  if constexpr (sizeof(T) == 2) {
    // Adjacent values have adjacent bits; below zero the order is reversed.
    const auto bits = value.bits;
    if ((bits & 0x7fff) == 0) {
      value.bits = 0x8001;
    } else {
      value.bits = static_cast<std::uint16_t>((bits & 0x8000) != 0 ? bits + 1 : bits - 1);
    }
    return value;
  } else {
    return std::nextafter(value, -std::numeric_limits<T>::infinity());
  }
}

}  // namespace athanor::kernels
