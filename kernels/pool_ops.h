#pragma once

#include <cstdint>

#include "tensor/half.h"

namespace athanor::kernels {

/// The running maximum of a window: the first of equals stays, and so does the first NaN.
template <class A> struct Best {
  A value;
  std::int32_t at;

  ATH_HD void offer(A v, std::int32_t place) {
    const bool better = (v > value || v != v) && value == value;
    value = better ? v : value;
    at = better ? place : at;
  }
};

}  // namespace athanor::kernels
