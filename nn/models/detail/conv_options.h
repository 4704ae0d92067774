#pragma once

#include <cstdint>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"

// Options of the layers that ResNet, RegNet and DenseNet have in common.

namespace athanor::nn {

inline constexpr BatchNormOptions kNormRelu{.activation = Activation::relu};

/// A convolution before a batch norm, which has the shift.
inline Conv2dOptions unbiased(std::int64_t stride, std::int64_t padding, std::int64_t groups = 1) {
  return {.stride = stride,
          .padding = padding,
          .groups = groups,
          .bias = false,
          .weight_init = init::kaiming_fan_out};
}

}  // namespace athanor::nn
