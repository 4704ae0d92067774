#pragma once

#include <cstdint>

#include "tensor/tensor.h"

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

/// Calls f<I>() with the type of the places within a window.
template <class F> void dispatch_index(const Tensor& index, const F& f) {
  if (index.dtype() == DType::u8) return f.template operator()<std::uint8_t>();
  f.template operator()<std::int32_t>();
}

}  // namespace athanor::kernels
