#pragma once

#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "autograd/shape.h"
#include "tensor/tensor.h"

/// relu(x * scale + bias). x [N, C] floating, of any strides; scale and bias [C], of the same dtype.
inline athanor::Tensor scale_bias_relu(const athanor::Tensor& x, const athanor::Tensor& scale,
                                       const athanor::Tensor& bias) {
  return athanor::relu(x * scale + bias);
}
