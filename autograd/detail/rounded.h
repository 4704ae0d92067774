#pragma once

#include "tensor/tensor.h"

namespace athanor {

/// A scalar in the precision of ops on x: unchanged for f64, rounded to f32 for every other dtype.
inline double rounded(double value, const Tensor& x) {
  return x.dtype() == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

}  // namespace athanor
