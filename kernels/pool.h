#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/context.h"

namespace athanor {

struct Pool2dParams {
  std::int64_t window[2] = {2, 2};  ///< along H, W
  std::int64_t stride[2] = {2, 2};
  std::int64_t padding[2] = {0, 0};  ///< max: never wins; average: see count_padding. At most half the window
  bool ceil_mode = false;     ///< round the output size up; windows that start in the padding are dropped
  bool count_padding = true;  ///< average divides by the window size, padding included
  std::int64_t dilation[2] = {1, 1};  ///< max: steps between the elements of a window
};

namespace kernels {

/// The windows along one axis: `outputs` of them over `inputs` positions. Their starts and ends never
/// decrease, so the windows that cover an input are contiguous.
struct PoolAxis {
  std::int64_t inputs = 0, outputs = 0;
  std::int64_t window = 1, stride = 1, padding = 0;
  bool adaptive = false;      ///< window i is [floor(i inputs / outputs), ceil((i + 1) inputs / outputs))
  std::int64_t dilation = 1;  ///< steps from one element of a window to the next

  /// Distance from the first element of a window to the end of its last.
  ATH_HD std::int64_t extent() const { return dilation * (window - 1) + 1; }

  ATH_HD std::int64_t start(std::int64_t i) const {
    return adaptive ? i * inputs / outputs : i * stride - padding;
  }
  ATH_HD std::int64_t end(std::int64_t i) const {  // may lie in the padding
    if (adaptive) return ((i + 1) * inputs + outputs - 1) / outputs;
    return std::min(start(i) + extent(), inputs + padding);
  }
};

/// The windows along both axes.
struct PoolWindows {
  PoolAxis h, w;
  bool count_padding = true;
};

// x [N, H, W, C] and y [N, P, Q, C], dense, one floating dtype; `index` [N, P, Q, C] is u8 for windows of at
// most 256 elements, else i32. C is innermost everywhere; every element of the result is written once. Only
// max pooling has a dilation.

/// y = the largest element of each window, or the first NaN; index = its position in the window, r * window_w
/// + s. An undefined index is not written. Every window contains an element of x.
ATH_KERNEL(void, max_pool_forward, const PoolWindows& windows, const Tensor& x, Out y, Out index);
/// dx = sum of dy over the windows whose maximum is x. Gathers: no atomics, one rounding.
ATH_KERNEL(void, max_pool_backward, const PoolWindows& windows, const Tensor& dy, const Tensor& index,
           Out dx);
ATH_MAP(max_pool_backward, (const PoolWindows&, const Tensor& dy, const Tensor& index, Out dx),
        "max_pool2d_backward", (dy, index), (dx))

/// positions = h W + w of the maxima of max_pool_forward() in their image, from `index`. i64, shaped like
/// index.
ATH_KERNEL(void, max_pool_positions, const PoolWindows& windows, const Tensor& index, Out positions);
ATH_MAP(max_pool_positions, (const PoolWindows&, const Tensor& index, Out positions), "max_pool2d_positions",
        (index), (positions))

/// y = mean of each window, divided by its number of elements, with padding if count_padding.
ATH_KERNEL(void, avg_pool_forward, const PoolWindows& windows, const Tensor& x, Out y);
ATH_KERNEL(void, avg_pool_backward, const PoolWindows& windows, const Tensor& dy, Out dx);
ATH_MAP(avg_pool_backward, (const PoolWindows&, const Tensor& dy, Out dx), "avg_pool2d_backward", (dy), (dx))

}  // namespace kernels
}  // namespace athanor
