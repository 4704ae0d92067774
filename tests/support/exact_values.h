#pragma once

#include <cstdint>
#include <vector>

#include "kernels/copy.h"
#include "tensor/tensor.h"

namespace athanor::test {

/// Multiples of 1/8 in [-1, 1]: exact in every floating dtype, and so are short sums of their products.
inline Tensor values(const Shape& shape, DType dtype, int seed) {
  std::vector<double> numbers(static_cast<std::size_t>(shape.numel()));
  std::uint32_t state = 12345u + static_cast<std::uint32_t>(seed) * 7919u;
  for (double& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = (static_cast<int>(state >> 24) % 17 - 8) / 8.0;
  }
  const Tensor exact = Tensor::from(numbers, shape), cast = Tensor::empty(shape, {dtype});
  kernels::copy(cpu_context(), exact, cast);
  return cast;
}

}  // namespace athanor::test
