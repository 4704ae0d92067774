#pragma once

#include "tests/cuda/device.h"

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

}  // namespace athanor::test
