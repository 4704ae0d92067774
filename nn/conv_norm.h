#pragma once

#include "nn/batch_norm.h"
#include "nn/conv2d.h"

namespace athanor::nn {

/// norm(conv(x)) or, with a residual, norm.forward(conv(x), residual): the convolution, the norm, the
/// residual and the norm's activation. With packed weights (Module::pack_weights()), in InferenceMode, the
/// norm is part of the convolution's weights and bias, and nothing lies between them in memory. A Sequential
/// calls it for each Conv2d with a BatchNorm behind it.
Tensor conv_norm_act(Conv2d& conv, BatchNorm& norm, const Tensor& x, const Tensor& residual = {});

}  // namespace athanor::nn
