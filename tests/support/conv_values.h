#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/copy.h"
#include "tests/support/conv_cases.h"
#include "tests/support/exact_values.h"

namespace athanor::test {

inline std::string name(const ConvCase& c, DType dtype, ConvImpl impl) {
  return fmt::format("x {} w {} groups {} {} impl {}", c.x.str(), c.w.str(), c.params.groups, name_of(dtype),
                     static_cast<int>(impl));
}

/// x in f64.
inline Tensor wide(const Tensor& x) {
  const Tensor y = Tensor::empty(x.shape(), {DType::f64});
  kernels::copy(cpu_context(), x, y);
  return y;
}

}  // namespace athanor::test
