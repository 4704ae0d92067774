#pragma once

#include "kernels/conv.h"
#include "tensor/tensor.h"

namespace athanor {

/// 2-d convolution (cross-correlation, as everywhere in the field) with fused bias and activation.
/// x [N, H, W, C], w [K, R, S, C / groups], bias [K] or undefined -> [N, P, Q, K], with
/// P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1. With same_padding, for stride 1 alone, P = H; of
/// an odd number of zeros, one more is behind. One floating dtype; accumulates in f32 (f64 for f64). C may be
/// 0: y is then activation(bias).
/// In f32, 3 x 3 filters of stride 1 may be applied by Winograd's algorithm, forward and backward. One NaN or
/// infinity then spoils every result of its tile, also those whose window does not hold it.
/// Throws ArgumentError on rank, shape, dtype or device.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dParams& params = {});

}  // namespace athanor
