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

/// A convolution's result, and the sums of its channels if they were found: BatchNormParams::sums.
struct ConvAndSums {
  Tensor y, sums;
};
/// conv2d() before a batch norm that will be training. Finds the sums if there is no bias and no activation,
/// where that is faster than to read y again: on a GPU for f16 and bf16 if fusion_enabled(), on the CPU with
/// Winograd's algorithm.
ConvAndSums conv2d_with_sums(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                             const Conv2dParams& params = {});

/// activation(conv(x, w) + bias + residual) with packed weights and bias, for inference; not recorded. x and
/// residual (the result's shape, or undefined) are f32 on the CPU. A ReLU may turn NaN into 0. Throws
/// ArgumentError on shape, dtype or device, and if the weights have changed since they were packed.
Tensor conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                     const Tensor& residual = {});

/// relu(max_pool2d(conv(x) + bias)) with 2 x 2 windows and packed weights, in one pass if the CPU has code
/// for it. That pass may ignore a NaN in a window. x and errors as above.
Tensor conv2d_pool_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params);

}  // namespace athanor
