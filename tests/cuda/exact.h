#pragma once

#include <vector>

#include "tests/cuda/device.h"
#include "tests/support/compare.h"

namespace athanor::test {

/// Multiples of 1/8 in [-1, 1]: exact in every floating dtype, and in f32 so are the sums of thousands of
/// their products. Whatever order kernels add them up in, results are equal to the bit.
inline Tensor exact(const ShapeCase& wanted, DType dtype, RandomKey key) {
  Tensor x = make(wanted, dtype);
  std::uint64_t at = 0;
  dispatch_floating(dtype, "test", [&]<class T>() {
    for_each_offset(x, [&](std::int64_t offset) {
      const auto step = static_cast<int>(random_uniform(philox_word(key, at++)) * 17);
      x.data<T>()[offset] = T(static_cast<float>(std::min(step, 16) - 8) / 8);
    });
  });
  return x;
}

/// Same shape, dtype and values, whatever the strides. 0 equals -0: where an output of a convolution sees
/// padding alone, the sign depends on whether a sum begins with 0 or with the first product.
inline testing::AssertionResult same_values(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return same_bits(a, b);
  const std::vector<double> in_a = a.to_vector(), in_b = b.to_vector();
  for (std::size_t i = 0; i < in_a.size(); ++i) {
    if (in_a[i] != in_b[i])
      return testing::AssertionFailure()
             << fmt::format("element {} of {} is {}, not {}", i, a.shape(), in_a[i], in_b[i]);
  }
  return testing::AssertionSuccess();
}

}  // namespace athanor::test
