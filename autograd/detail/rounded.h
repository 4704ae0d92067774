#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// A number as an op over x computes with it: all its digits for f64, those of f32 for every other dtype.
inline double rounded(double value, const Tensor& x) {
  return x.dtype() == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

}  // namespace athanor
