#pragma once

#include <cstdint>
#include <vector>

#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "tensor/tensor.h"

namespace athanor::test {

/// A tensor of `number(bits)` for random bits.
template <class F> Tensor random_values(const Shape& shape, DType dtype, int seed, const F& number) {
  std::vector<double> numbers(static_cast<std::size_t>(shape.numel()));
  std::uint32_t state = 12345u + static_cast<std::uint32_t>(seed) * 7919u;
  for (double& one : numbers) one = number(state = state * 1664525u + 1013904223u);
  const Tensor exact = Tensor::from(numbers, shape), cast = Tensor::empty(shape, {dtype});
  kernels::copy(cpu_context(), exact, cast);
  return cast;
}

/// Multiples of 1/8 in [-1, 1]: exact in every floating dtype, and so are short sums of their products.
inline Tensor values(const Shape& shape, DType dtype, int seed) {
  return random_values(shape, dtype, seed,
                       [](std::uint32_t bits) { return (static_cast<int>(bits >> 24) % 17 - 8) / 8.0; });
}

/// In [-1, 1), with all bits of an f32: sums are rounded, so that their order shows.
inline Tensor rounded_values(const Shape& shape, DType dtype, int seed) {
  return random_values(shape, dtype, seed, [](std::uint32_t bits) { return (bits >> 8) * 0x1p-23 - 1; });
}

/// One of these.
using Values = Tensor (*)(const Shape&, DType, int);

}  // namespace athanor::test
