#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/tensor.h"

namespace athanor::test {

/// max|a - b| / max|b|, the error of a against a reference b; NaN where the two disagree about NaN.
inline double max_relative_error(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(b[i]) || a[i] == b[i]) {
      if (std::isfinite(b[i])) scale = std::max(scale, std::abs(b[i]));
      continue;
    }
    worst = std::max(worst, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst == 0 ? 0 : worst / std::max(scale, std::numeric_limits<double>::min());
}
inline double max_relative_error(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return std::numeric_limits<double>::infinity();
  return max_relative_error(a.to_vector(), b.to_vector());
}
inline double max_relative_error(const Tensor& a, const std::vector<double>& b) {
  return max_relative_error(a.to_vector(), b);
}

/// One unit in the last place of that dtype, relative to 1.
inline double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-52;
    case DType::f32: return 0x1p-23;
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    default: return 0;
  }
}

/// EXPECT_TRUE(close(y, reference, 4 * epsilon_of(f32))): says the error on failure.
template <class Reference>
testing::AssertionResult close(const Tensor& a, const Reference& b, double tolerance) {
  const double error = max_relative_error(a, b);
  if (error <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "max|a-b| / max|b| is " << error << ", allowed " << tolerance;
}

/// Same shape, dtype and bits, whatever the strides.
inline testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return testing::AssertionFailure()
           << fmt::format("{} {} against {} {}", a.dtype(), a.shape(), b.dtype(), b.shape());
  }
  const std::size_t size = size_of(a.dtype());
  for (std::int64_t flat = 0; flat < a.numel(); ++flat) {
    std::int64_t rest = flat, at[2] = {0, 0};
    for (int axis = a.rank() - 1; axis >= 0; --axis) {
      at[0] += rest % a.shape()[axis] * a.strides()[axis];
      at[1] += rest % a.shape()[axis] * b.strides()[axis];
      rest /= a.shape()[axis];
    }
    const auto bytes = static_cast<std::int64_t>(size);
    if (std::memcmp(a.raw_data() + at[0] * bytes, b.raw_data() + at[1] * bytes, size) != 0)
      return testing::AssertionFailure() << fmt::format("element {} of {} differs", flat, a.shape());
  }
  return testing::AssertionSuccess();
}

}  // namespace athanor::test
