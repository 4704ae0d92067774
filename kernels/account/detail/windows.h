#pragma once

#include <algorithm>

#include "kernels/account/detail/cost.h"
#include "kernels/pool.h"

namespace athanor::account {

/// Inputs of one axis that lie in some window.
inline std::int64_t covered(const kernels::PoolAxis& axis) {
  std::int64_t count = 0, end = 0;
  for (std::int64_t i = 0; i < axis.outputs; ++i) {
    if (axis.dilation > 1) return axis.inputs;
    const std::int64_t from = std::max(axis.start(i), end), to = std::min(axis.end(i), axis.inputs);
    count += std::max<std::int64_t>(to - std::max<std::int64_t>(from, 0), 0);
    end = std::max(end, to);
  }
  return count;
}
/// Bytes of x that windows cover.
inline std::int64_t bytes_in_windows(const kernels::PoolWindows& windows, const Tensor& x) {
  if (x.numel() == 0) return 0;
  return bytes(x) / (windows.h.inputs * windows.w.inputs) * covered(windows.h) * covered(windows.w);
}

}  // namespace athanor::account
