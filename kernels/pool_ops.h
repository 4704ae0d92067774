#pragma once

#include <cstdint>

#include "kernels/pool.h"

namespace athanor::kernels {

/// The running maximum of a window: keeps the first of equals and the first NaN.
template <class A> struct Best {
  A value;
  std::int32_t at;

  ATH_HD void offer(A v, std::int32_t place) {
    const bool better = (v > value || v != v) && value == value;
    value = better ? v : value;
    at = better ? place : at;
  }
};

/// h W + w of the element at `place` in the window of output (p, q).
ATH_HD inline std::int64_t position_of(const PoolWindows& windows, std::int64_t p, std::int64_t q,
                                       std::int64_t place) {
  const std::int64_t r = place / windows.w.window, s = place % windows.w.window;
  const std::int64_t h = windows.h.start(p) + r * windows.h.dilation,
                     w = windows.w.start(q) + s * windows.w.dilation;
  return h * windows.w.inputs + w;
}

/// Index of the first element of a window from `start` that is not in the padding before x.
ATH_HD inline std::int64_t first_tap(std::int64_t start, std::int64_t dilation) {
  return start < 0 ? (dilation - 1 - start) / dilation : 0;
}

/// Index of the window's element `offset` steps from its first; -1 if there is none.
ATH_HD inline std::int64_t tap_at(std::int64_t offset, std::int64_t dilation) {
  if (dilation == 1) return offset;
  return offset % dilation == 0 ? offset / dilation : -1;
}

/// Calls f<I>() with the type of positions in a window.
template <class F> void dispatch_index(const Tensor& index, const F& f) {
  if (index.dtype() == DType::u8) return f.template operator()<std::uint8_t>();
  f.template operator()<std::int32_t>();
}

}  // namespace athanor::kernels
