#pragma once

#include "kernels/conv.h"
#include "tensor/tensor.h"

namespace athanor {

/// 2-d convolution (cross-correlation, as is usual in deep learning) with fused bias and activation.
/// x [N, H, W, C], w [K, R, S, C / groups], bias [K] or undefined -> [N, P, Q, K], with
/// P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1. same_padding requires stride 1 and gives P = H;
/// an odd number of zeros puts the extra one at the end. One floating dtype; accumulates in f32 (f64 for
/// f64). If C is 0, y is activation(bias).
/// On the CPU, Winograd's algorithm may compute 3 x 3 filters of stride 1 between multiples of 16 channels,
/// forward and backward. A NaN or infinity then affects every result of its 4 x 4 tile, even outside its
/// window; errors are 3e-6 of the largest result. ConvImpl::vendor never uses it.
/// Throws ArgumentError on rank, shape, dtype or device.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dParams& params = {});

}  // namespace athanor
