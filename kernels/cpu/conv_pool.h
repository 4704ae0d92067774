#pragma once

#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cpu {

/// Whether this CPU and our code for a convolution with pooling behind it can do it: up to 8 input channels,
/// stride and dilation 1, one group.
bool conv_pool_fits(const ConvSize& size);
/// The code for a forward pass with packed f32 weights of one that fits: y = relu(the largest of each 2 x 2
/// of conv(x, w) + bias), [N, P / 2, Q / 2, K]. It may take a number for the largest where one of the four is
/// NaN.
MadePrimitive make_conv_pool(const PrimitiveKey& key);

}  // namespace athanor::cpu
