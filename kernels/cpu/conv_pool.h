#pragma once

#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cpu {

/// Whether our code for a convolution with pooling supports it on this CPU: up to 8 input channels, stride
/// and dilation 1, one group.
bool conv_pool_fits(const ConvSize& size);
/// The code for a supported forward pass with packed f32 weights: y = relu(the maximum of each 2 x 2 of
/// conv(x, w) + bias), [N, P / 2, Q / 2, K]. It may ignore a NaN among the four.
MadePrimitive make_conv_pool(const PrimitiveKey& key);

}  // namespace athanor::cpu
