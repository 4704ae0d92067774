#include "kernels/pool.h"

#include "kernels/account/detail/cost.h"
#include "kernels/interpolate.h"

namespace athanor::kernels {

using account::bytes;
using account::map;

namespace {

/// Inputs of one axis that lie in some window.
std::int64_t covered(const PoolAxis& axis) {
  std::int64_t count = 0, end = 0;
  for (std::int64_t i = 0; i < axis.outputs; ++i) {
    if (axis.dilation > 1) return axis.inputs;
    const std::int64_t from = std::max(axis.start(i), end), to = std::min(axis.end(i), axis.inputs);
    count += std::max<std::int64_t>(to - std::max<std::int64_t>(from, 0), 0);
    end = std::max(end, to);
  }
  return count;
}
std::int64_t bytes_in_windows(const PoolWindows& windows, const Tensor& x) {
  if (x.numel() == 0) return 0;
  return bytes(x) / (windows.h.inputs * windows.w.inputs) * covered(windows.h) * covered(windows.w);
}

}  // namespace

template <>
void max_pool_forward(AccountContext& context, const PoolWindows& windows, const Tensor& x, const Tensor& y,
                      const Tensor& index) {
  if (y.numel() == 0) return;
  account::launch(context, "max_pool2d", bytes_in_windows(windows, x), bytes(y) + bytes(index));
}
template <>
void max_pool_backward(AccountContext& context, const PoolWindows&, const Tensor& dy, const Tensor& index,
                       const Tensor& dx) {
  map(context, "max_pool2d_backward", bytes(dy) + bytes(index), dx);
}
template <>
void max_pool_positions(AccountContext& context, const PoolWindows&, const Tensor& index,
                        const Tensor& positions) {
  map(context, "max_pool2d_positions", bytes(index), positions);
}
template <>
void avg_pool_forward(AccountContext& context, const PoolWindows& windows, const Tensor& x, const Tensor& y) {
  map(context, "avg_pool2d", bytes_in_windows(windows, x), y);
}
template <>
void avg_pool_backward(AccountContext& context, const PoolWindows&, const Tensor& dy, const Tensor& dx) {
  map(context, "avg_pool2d_backward", bytes(dy), dx);
}

/// Of an image that shrinks, the nearest pixels alone.
template <>
void interpolate_forward(AccountContext& context, Interpolation mode, const InterpolateAxes&, const Tensor& x,
                         const Tensor& y) {
  const bool nearest = mode == Interpolation::nearest;
  map(context, "interpolate", nearest ? std::min(bytes(x), bytes(y)) : bytes(x), y);
}
template <>
void interpolate_backward(AccountContext& context, Interpolation, const InterpolateAxes&, const Tensor& dy,
                          const Tensor& dx) {
  map(context, "interpolate_backward", bytes(dy), dx);
}

}  // namespace athanor::kernels
