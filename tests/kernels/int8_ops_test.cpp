// 8-bit ops that are not products, against plain loops: equal bytes, for every number of channels, on one
// thread and on two.
#include "kernels/int8_ops.h"

#include <bit>
#include <limits>
#include <numeric>

#include "tests/support/int8_values.h"

namespace athanor::int8_ops_test {

using kernels::Rounding;
using test::Bytes;
using test::bytes_of;
using test::expect_bytes;
using test::like_u8;
using test::on_one_and_two_threads;
using test::random_u8;
using test::rounded_u8;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Int8Ops, RoundsToTheNearestEvenInteger) {
  for (const Rounding& r : test::roundings()) {
    const kernels::RoundToU8 round(r);
    for (int i = -2200; i <= 2200; ++i) {
      const float v = static_cast<float>(i) / 4;
      for (const float near : {std::nextafter(v, -kInfinity), v, std::nextafter(v, kInfinity)})
        ASSERT_EQ(int{round(near)}, int{rounded_u8(near, r)}) << near << " with zero " << r.zero;
    }
    for (const float far : {1e9f, -1e9f, 3e38f, -3e38f, kInfinity, -kInfinity, 0.0f, -0.0f})
      ASSERT_EQ(int{round(far)}, int{rounded_u8(far, r)}) << far << " with zero " << r.zero;
    ASSERT_EQ(int{round(std::numeric_limits<float>::quiet_NaN())}, r.low);
  }
}

/// Values around the steps of a scale, large ones, and the special ones.
Tensor reals(std::int64_t count, float scale, unsigned seed) {
  const Tensor x = Tensor::empty({count});
  std::mt19937 bits(seed);
  constexpr float kSpecial[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 3e38f, -3e38f,
                                1e-45f,    -0.0f};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::int32_t>(bits() % 1400) - 700;
    float value = static_cast<float>(number) / 2 * scale;
    if (number % 3 == 0) value = std::nextafter(value, number % 2 == 0 ? kInfinity : -kInfinity);
    x.data<float>()[i] = bits() % 20 == 0 ? kSpecial[bits() % std::size(kSpecial)] : value;
  }
  return x;
}

constexpr std::int64_t kCounts[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 1000, 70001};

TEST(Int8Ops, Quantize) {
  for (const std::int64_t count : kCounts) {
    for (const float scale : {0.0078125f, 0.1f, 3.0f, 1e-30f, 1e30f}) {
      for (const std::int32_t zero : {0, 1, 128, 255}) {
        const Tensor x = reals(count, scale, 1), y = Tensor::empty({count}, {DType::u8});
        Bytes want;
        for (std::int64_t i = 0; i < count; ++i) {
          const float v = x.data<float>()[i] / scale;
          want.push_back(rounded_u8(std::isnan(v) ? 0.0f : v, {.zero = zero}));
        }
        expect_bytes(on_one_and_two_threads(y,
                                            [&](CpuContext& context) {
                                              kernels::quantize(context, x, {scale, zero}, y);
                                            }),
                     want, fmt::format("{} by {} and {}", count, scale, zero));
      }
    }
  }
}

TEST(Int8Ops, Dequantize) {
  for (const std::int64_t count : kCounts) {
    for (const std::int32_t zero : {0, 77, 255}) {
      const Tensor x = random_u8({count}, 1), y = Tensor::empty({count});
      kernels::dequantize(cpu_context(), x, {0.1f, zero}, y);
      for (std::int64_t i = 0; i < count; ++i) {
        const float want = 0.1f * static_cast<float>(x.data<std::uint8_t>()[i] - zero);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y.data<float>()[i]), std::bit_cast<std::uint32_t>(want))
            << i << " of " << count;
      }
    }
  }
}

TEST(Int8Ops, WhatIsDequantizedIsQuantizedAsItWas) {
  const Tensor x = Tensor::empty({256}, {DType::u8}), real = Tensor::empty({256}), y = like_u8(x);
  std::iota(x.data<std::uint8_t>(), x.data<std::uint8_t>() + 256, std::uint8_t{0});
  for (const float scale : {0.01f, 0.3f, 7.0f, 1e-20f}) {
    for (const std::int32_t zero : {0, 100, 255}) {
      kernels::dequantize(cpu_context(), x, {scale, zero}, real);
      kernels::quantize(cpu_context(), real, {scale, zero}, y);
      expect_bytes(bytes_of(y), bytes_of(x), fmt::format("{} and {}", scale, zero));
    }
  }
}

TEST(Int8Ops, Add) {
  for (const std::int64_t count : kCounts) {
    for (const Rounding& r : test::roundings()) {
      const Tensor a = random_u8({count}, 1), b = random_u8({count}, 2), y = like_u8(a);
      const float a_scale = 0.37f, b_scale = 1.6f;
      Bytes want;
      for (std::int64_t i = 0; i < count; ++i) {
        const float left = a_scale * static_cast<float>(a.data<std::uint8_t>()[i] - 12);
        const float right = b_scale * static_cast<float>(b.data<std::uint8_t>()[i] - 200);
        want.push_back(rounded_u8(left + right, r));
      }
      expect_bytes(
          on_one_and_two_threads(y,
                                 [&](CpuContext& context) {
                                   kernels::add_int8(context, a, a_scale, 12, {b, b_scale, 200}, r, y);
                                 }),
          want, fmt::format("{} with zero {}", count, r.zero));
    }
  }
}

TEST(Int8Ops, AddsATensorToItselfInPlace) {
  const Tensor a = random_u8({333}, 1);
  const Bytes before = bytes_of(a);
  kernels::add_int8(cpu_context(), a, 0.5f, 3, {a, 0.25f, 3}, {.zero = 9}, a);
  Bytes want;
  for (const std::uint8_t value : before)
    want.push_back(rounded_u8(0.5f * static_cast<float>(value - 3) + 0.25f * static_cast<float>(value - 3),
                              {.zero = 9}));
  expect_bytes(bytes_of(a), want, "in place");
}

TEST(Int8Ops, Multiply) {
  for (std::int64_t channels = 1; channels <= 130; ++channels) {
    for (const std::int64_t batch : {1, 5}) {
      const Rounding r = test::roundings()[static_cast<std::size_t>(channels) % test::roundings().size()];
      const Tensor x = random_u8({batch, 5, 9, channels}, 1), s = random_u8({batch, 1, 1, channels}, 2),
                   y = like_u8(x);
      Bytes want;
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        const std::int64_t gate = i / (45 * channels) * channels + i % channels;
        const std::int32_t product = (x.data<std::uint8_t>()[i] - 31) * (s.data<std::uint8_t>()[gate] - 5);
        want.push_back(rounded_u8(0.004f * static_cast<float>(product), r));
      }
      expect_bytes(
          on_one_and_two_threads(
              y, [&](CpuContext& context) { kernels::multiply_int8(context, x, 31, s, 5, 0.004f, r, y); }),
          want, fmt::format("{} channels, {} images", channels, batch));
    }
  }
}

TEST(Int8Ops, MultiplyOnSeveralThreads) {
  const Tensor x = random_u8({3, 40, 41, 24}, 1), s = random_u8({3, 1, 1, 24}, 2), y = like_u8(x);
  Bytes want;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t gate = i / (40 * 41 * 24) * 24 + i % 24;
    const std::int32_t product = x.data<std::uint8_t>()[i] * s.data<std::uint8_t>()[gate];
    want.push_back(rounded_u8(0.01f * static_cast<float>(product), {}));
  }
  expect_bytes(
      on_one_and_two_threads(
          y, [&](CpuContext& context) { kernels::multiply_int8(context, x, 0, s, 0, 0.01f, {}, y); }),
      want, "3 images");
}

TEST(Int8Ops, Lookup) {
  const Tensor table = random_u8({256}, 3);
  for (const std::int64_t count : kCounts) {
    const Tensor x = random_u8({count}, 1), y = like_u8(x);
    Bytes want;
    for (const std::uint8_t value : bytes_of(x)) want.push_back(table.data<std::uint8_t>()[value]);
    expect_bytes(
        on_one_and_two_threads(y, [&](CpuContext& context) { kernels::lookup_int8(context, x, table, y); }),
        want, fmt::format("{}", count));
  }
}

// Pools ----------------------------------------------------------------------------------------------------

struct PoolCase {
  std::int64_t h, w, p, q;
  Pool2dParams params;
};
const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> kAll{
      {8, 6, 4, 3, {}},                                                        // 2 x 2
      {7, 9, 3, 4, {}},                                                        // a row and a column are left
      {7, 7, 4, 4, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},   // ResNet's
      {6, 5, 6, 5, {.window = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}},   // overlapping
      {7, 5, 4, 3, {.ceil_mode = true}},                                       // partly behind x
      {4, 11, 3, 4, {.window = {3, 4}, .stride = {1, 3}, .padding = {1, 2}}},  // unequal axes
      {7, 7, 1, 1, {.window = {7, 7}, .stride = {7, 7}}},                      // global
      {1, 1, 1, 1, {.window = {1, 1}, .stride = {1, 1}}},                      // one pixel
      {30, 1, 1, 1, {.window = {30, 1}, .stride = {1, 1}}},                    // more than 255 in a window
  };
  return kAll;
}
constexpr PoolCase kDilated{9, 8, 5, 4, {.window = {3, 3}, .stride = {1, 1}, .dilation = {2, 2}}};

/// f(element) of x in the window of an output.
template <class F> void each_in_window(const PoolCase& of, const Tensor& x, std::int64_t output, const F& f) {
  const std::int64_t channels = x.dim(3), c = output % channels, q = output / channels % of.q,
                     p = output / channels / of.q % of.p, n = output / channels / of.q / of.p;
  for (std::int64_t r = 0; r < of.params.window[0]; ++r)
    for (std::int64_t s = 0; s < of.params.window[1]; ++s) {
      const std::int64_t h = p * of.params.stride[0] - of.params.padding[0] + r * of.params.dilation[0],
                         w = q * of.params.stride[1] - of.params.padding[1] + s * of.params.dilation[1];
      if (h >= 0 && h < of.h && w >= 0 && w < of.w)
        f(x.data<std::uint8_t>()[((n * of.h + h) * of.w + w) * channels + c]);
    }
}

void expect_max(const PoolCase& of, std::int64_t batch, std::int64_t channels) {
  const Tensor x = random_u8({batch, of.h, of.w, channels}, 1),
               y = Tensor::empty({batch, of.p, of.q, channels}, {DType::u8});
  Bytes want;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    std::uint8_t largest = 0;
    each_in_window(of, x, i, [&](std::uint8_t value) { largest = std::max(largest, value); });
    want.push_back(largest);
  }
  expect_bytes(on_one_and_two_threads(
                   y, [&](CpuContext& context) { kernels::max_pool2d_int8(context, of.params, x, y); }),
               want, fmt::format("{} x {}, {} channels, {} images", of.h, of.w, channels, batch));
}

TEST(Int8Ops, MaxPool) {
  for (const PoolCase& of : pool_cases())
    for (std::int64_t channels = 1; channels <= 130; ++channels)
      expect_max(of, channels % 4 == 0 ? 5 : 1, channels);
  for (const std::int64_t channels : {1, 16, 50}) expect_max(kDilated, 2, channels);
  expect_max({64, 48, 32, 24, {}}, 3, 20);  // several threads
}

void expect_average(const PoolCase& of, std::int64_t batch, std::int64_t channels, const Rounding& r) {
  constexpr std::int32_t kZero = 19;
  const Tensor x = random_u8({batch, of.h, of.w, channels}, 1),
               y = Tensor::empty({batch, of.p, of.q, channels}, {DType::u8});
  const float scale = 1.7f / static_cast<float>(of.params.window[0] * of.params.window[1]);
  Bytes want;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    std::int32_t sum = 0;
    each_in_window(of, x, i, [&](std::uint8_t value) { sum += value - kZero; });
    want.push_back(rounded_u8(scale * static_cast<float>(sum), r));
  }
  expect_bytes(on_one_and_two_threads(y,
                                      [&](CpuContext& context) {
                                        kernels::avg_pool2d_int8(context, of.params, x, kZero, scale, r, y);
                                      }),
               want, fmt::format("{} x {}, {} channels, {} images", of.h, of.w, channels, batch));
}

TEST(Int8Ops, AveragePool) {
  const auto& roundings = test::roundings();
  for (const PoolCase& of : pool_cases())
    for (std::int64_t channels = 1; channels <= 130; ++channels)
      expect_average(of, channels % 4 == 0 ? 5 : 1, channels,
                     roundings[static_cast<std::size_t>(channels) % roundings.size()]);
  expect_average({64, 48, 32, 24, {}}, 3, 20, {});  // several threads
  expect_average({112, 112, 1, 1, {.window = {112, 112}, .stride = {112, 112}}}, 1, 9, {});  // large sums
}

}  // namespace athanor::int8_ops_test
