#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

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

// Windows of two kinds have kernels of their own on a GPU, which other kernels include.

/// Whether windows lie side by side: each element of x is in one of them, or behind the last.
inline bool side_by_side(const PoolAxis& axis) {
  return !axis.adaptive && axis.window == axis.stride && axis.dilation == 1 && axis.padding == 0 &&
         axis.outputs * axis.stride <= axis.inputs;
}
inline bool side_by_side(const PoolWindows& windows) {
  return side_by_side(windows.h) && side_by_side(windows.w);
}

/// Windows over an element along an axis, at most, where few_windows() holds.
inline constexpr int kFewWindows = 2;
inline bool few_windows(const PoolAxis& axis) {
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  return !axis.adaptive && axis.dilation == 1 && axis.window <= kFewWindows * axis.stride &&
         axis.inputs + axis.padding <= kLimit && axis.stride <= kLimit / 2;
}
/// Whether few windows lie over each element of x, and all indices are 32-bit numbers.
inline bool few_windows(const PoolWindows& windows, const Tensor& x) {
  const std::int64_t pooled = x.dim(0) * windows.h.outputs * windows.w.outputs * x.dim(3);
  return few_windows(windows.h) && few_windows(windows.w) &&
         std::max(x.numel(), pooled) <= std::numeric_limits<std::int32_t>::max();
}

/// Whether a position in a window fits into 8 bits.
inline bool small_windows(const PoolWindows& windows) {
  return windows.h.window * windows.w.window <= 256;
}

/// Calls f<I>() with the type of positions in a window.
template <class F> void dispatch_index(const Tensor& index, const F& f) {
  if (index.dtype() == DType::u8) return f.template operator()<std::uint8_t>();
  f.template operator()<std::int32_t>();
}

}  // namespace athanor::kernels
