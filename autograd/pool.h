#pragma once

#include <cstdint>

#include "kernels/pool.h"
#include "tensor/tensor.h"

namespace athanor {

// x [N, H, W, C] floating, H and W at least 1. Throws ArgumentError on rank, dtype and windows that do not
// fit.

/// The largest value of each window; NaN wins. x [N, H, W, C] -> [N, P, Q, C] with
/// P = (H + 2 padding - dilation (window - 1) - 1) / stride + 1. The elements of a window are `dilation`
/// apart, and at least one must lie in x. The gradient goes to the first of equal maxima.
Tensor max_pool2d(const Tensor& x, const Pool2dParams& params = {});

struct MaxPooled {
  Tensor y;        ///< what max_pool2d() returns
  Tensor indices;  ///< i64, shaped like y: h W + w of each maximum in its image
};
/// max_pool2d() with the positions of the maxima.
MaxPooled max_pool2d_with_indices(const Tensor& x, const Pool2dParams& params = {});
/// The reverse: x [N, P, Q, C] and indices of its shape -> [N, out_h, out_w, C], zero except at the indices;
/// values with the same index are summed. Throws ArgumentError on indices outside the image (CPU only).
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, std::int64_t out_h, std::int64_t out_w);

/// Mean of each window, in f32 (f64 for f64). Shapes as in max_pool2d.
Tensor avg_pool2d(const Tensor& x, const Pool2dParams& params = {});
/// Average over out_h x out_w nearly equal windows; 1 x 1 is global average pooling. [N, H, W, C] -> [N,
/// out_h, out_w, C].
Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t out_h, std::int64_t out_w);

}  // namespace athanor
