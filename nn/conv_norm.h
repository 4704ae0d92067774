#pragma once

#include "nn/batch_norm.h"
#include "nn/conv2d.h"

namespace athanor::nn {

/// conv(x) for a call of `norm`, with the sums that the norm reads.
ConvAndSums with_sums(Conv2d& conv, const BatchNorm& norm, const Tensor& x);

/// Convolution, norm, residual (if any) and the norm's activation: norm(conv(x)) or norm.forward(conv(x),
/// residual). With packed weights (Module::pack_weights()), in InferenceMode, the norm is folded into the
/// convolution's weights and bias, so no intermediate result is stored. A Sequential calls this for each
/// Conv2d followed by a BatchNorm.
Tensor conv_norm_act(Conv2d& conv, BatchNorm& norm, const Tensor& x, const Tensor& residual = {});

}  // namespace athanor::nn
