#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/context.h"
#include "kernels/int8.h"

// What tests of 8-bit ops share: random bytes, and the last step in plain code.

namespace athanor::test {

using Bytes = std::vector<std::uint8_t>;

inline Tensor random_u8(const Shape& shape, unsigned seed) {
  const Tensor x = Tensor::empty(shape, {DType::u8});
  std::mt19937 bits(seed);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(bits());
  return x;
}
inline Tensor like_u8(const Tensor& x) {
  return Tensor::empty(x.shape(), {DType::u8});
}
inline Bytes bytes_of(const Tensor& x) {
  const auto* const from = x.data<std::uint8_t>();
  return {from, from + x.numel()};
}

/// clamp(round(v) + zero, low, high), of a v that is a number.
inline std::uint8_t rounded_u8(float v, const kernels::Rounding& r) {
  const double whole = std::nearbyint(static_cast<double>(v)) + r.zero;
  return static_cast<std::uint8_t>(std::clamp<double>(whole, r.low, r.high));
}

/// Bounds and zeros that matter: all of u8, ReLUs, a clamp to less.
inline const std::vector<kernels::Rounding>& roundings() {
  static const std::vector<kernels::Rounding> kAll{{.zero = 0},
                                                   {.zero = 128},
                                                   {.zero = 255},
                                                   {.zero = 7, .low = 7},
                                                   {.zero = 0, .low = 0, .high = 200},
                                                   {.zero = 3, .low = 5, .high = 9}};
  return kAll;
}

/// f() on one and on two threads, with equal bytes of y.
template <class F> Bytes on_one_and_two_threads(const Tensor& y, const F& f) {
  CpuContext& context = cpu_context();
  const int before = context.threads();
  Bytes results[2];
  for (const int threads : {1, 2}) {
    context.set_threads(threads);
    if (y.bytes() > 0) std::memset(y.raw_data(), 0xa5, y.bytes());
    f(context);
    results[threads - 1] = bytes_of(y);
  }
  context.set_threads(before);
  EXPECT_EQ(results[0], results[1]) << "on two threads";
  return results[0];
}

/// Elements that differ, of which the first is shown.
inline void expect_bytes(const Bytes& got, const Bytes& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(int{got[i]}, int{want[i]}) << what << ", element " << i << " of " << got.size();
}

}  // namespace athanor::test
