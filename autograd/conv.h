#pragma once

#include "kernels/conv.h"
#include "kernels/packed_weights.h"
#include "tensor/tensor.h"

namespace athanor {

/// 2-d convolution (cross-correlation, as everywhere in the field) with fused bias and activation.
/// x [N, H, W, C], w [K, R, S, C / groups], bias [K] or undefined -> [N, P, Q, K], with
/// P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1. With same_padding, for stride 1 alone, P = H; of
/// an odd number of zeros, one more is behind. One floating dtype; accumulates in f32 (f64 for f64). C may be
/// 0: y is then activation(bias).
/// On the CPU, 3 x 3 filters of stride 1 between multiples of 16 channels may be applied by Winograd's
/// algorithm, forward and backward. One NaN or infinity then spoils every result of its tile of 4 x 4, also
/// those whose window does not hold it; errors are 3e-6 of the largest result. ConvImpl::vendor never does.
/// Throws ArgumentError on rank, shape, dtype or device.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dParams& params = {});

/// activation(conv(x, w) + bias + residual) with weights and bias that were packed, for inference: not
/// recorded. x, residual (the result's shape, or undefined) f32 on the CPU. A ReLU may make 0 of NaN. Throws
/// ArgumentError on shapes, dtype, device, and where the weights have changed since they were packed.
Tensor conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                     const Tensor& residual = {});

/// relu(max_pool2d(conv(x) + bias)), of windows of 2 x 2, with packed weights: in one pass where the CPU has
/// code for it, which may take a number for the largest where one of four is NaN. x and errors as above.
Tensor conv2d_pool_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params);

}  // namespace athanor
