#pragma once

#include "autograd/conv_norm.h"

namespace athanor::kernels {
class PackedWeights;
}

// What conv_norm() consists of.
namespace athanor::detail {

/// conv2d() before a batch norm in training. Writes the sums of y's channels if there is no bias and no
/// activation, where that is faster than to read y again: on a GPU for f16 and bf16 if fusion_enabled(), on
/// the CPU with Winograd's algorithm. Else they stay undefined.
Tensor conv2d_with_sums(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                        Tensor& sums);

/// activation(conv(x, w) + bias + residual) with packed weights and bias; not recorded. x and residual (the
/// result's shape, or undefined) are f32 on the CPU.
Tensor conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                     const Tensor& residual = {});

/// batch_norm() of x.y, by its sums if they are defined.
Tensor batch_norm(const Unnormalised& x, const Tensor& residual);

/// Whether batch_norm_pair() has code for these: on a GPU, in training, with ReLU, a multiple of 8 channels
/// and no joined batch.
bool fuses_batch_norm_pair(const Unnormalised& a, const Unnormalised& b);
/// activation(norm(a) + norm(b)) as one op, with the activation of a. Both have one shape and dtype. Same
/// bits as batch_norm() of b, then of a with that as its residual.
Tensor batch_norm_pair(const Unnormalised& a, const Unnormalised& b);

}  // namespace athanor::detail
