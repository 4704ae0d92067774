#pragma once

#include <cmath>
#include <vector>

#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "tensor/tensor.h"

namespace athanor::test {

inline Tensor cast_to(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.shape(), {dtype, kCpu});
  kernels::copy(cpu_context(), x, y);
  return y;
}

/// What a norm keeps its parameters and statistics in.
inline DType stats_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// Deterministic f64 values, mean `center`, spread about 1.
inline Tensor wave(const Shape& shape, double center = 0, double phase = 0) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = center + 1.4 * std::sin(1.7 * static_cast<double>(i * i % 1009) + phase);
  return Tensor::from(values, shape);
}

}  // namespace athanor::test
