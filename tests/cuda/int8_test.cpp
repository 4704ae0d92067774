#include "kernels/int8.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/conv_plan.h"
#include "kernels/int8_weights.h"
#include "tests/cuda/ops.h"

// 8-bit kernels of a device against their contracts written out: equal bytes.

namespace athanor::int8_test {

using kernels::Int8Residual;
using kernels::Int8Weights;
using kernels::Rounding;
using test::context;
using test::Layout;
using test::on_cpu_like;
using test::on_device_like;
using test::same_bits;
using Int8OnDevice = test::DeviceTest;

std::uint8_t rounded(float v, const Rounding& to) {
  return static_cast<std::uint8_t>(
      std::clamp(std::nearbyint(double{v}) + to.zero, double(to.low), double(to.high)));
}

/// u8, of which a quarter is 0 or 255.
Tensor stored(const test::ShapeCase& wanted, RandomKey key) {
  const Tensor x = test::make(wanted, DType::u8);
  std::uint64_t at = 0;
  test::for_each_offset(x, [&](std::int64_t offset) {
    const double value = -40 + 336 * random_uniform(philox_word(key, at++));
    x.data<std::uint8_t>()[offset] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
  });
  return x;
}

struct Product {
  Tensor weights, multiplier, bias;  ///< on the CPU

  /// Weights within [-127, 127], of which a quarter is at either end; sums of such x leave y's range at both
  /// ends.
  Product(const Shape& shape, RandomKey key)
      : weights(Tensor::empty(shape, {DType::i8})),
        multiplier(Tensor::empty({shape[0]}, {DType::f32})),
        bias(Tensor::empty({shape[0]}, {DType::i32})) {
    std::uint64_t at = 0;
    const auto next = [&] { return random_uniform(philox_word(key, at++)); };
    for (std::int64_t i = 0; i < weights.numel(); ++i)
      weights.data<std::int8_t>()[i] =
          static_cast<std::int8_t>(std::clamp(-160 + 320 * next(), -127.0f, 127.0f));
    const double size = 128 * 73 * std::sqrt(static_cast<double>(shape.numel() / shape[0]));
    for (std::int64_t k = 0; k < shape[0]; ++k) {
      multiplier.data<float>()[k] = static_cast<float>((80 + 160 * next()) / size);
      bias.data<std::int32_t>()[k] = static_cast<std::int32_t>((next() - 0.5) * size);
    }
  }
};

/// v of every element of y.
std::vector<float> convolved(const ConvSize& z, const Tensor& x, std::int32_t x_zero, const Product& w) {
  std::vector<float> y;
  const auto* const from = x.data<std::uint8_t>();
  const auto* const filters = w.weights.data<std::int8_t>();
  const std::int64_t inner = z.group_c();
  for (std::int64_t i = 0; i < z.n * z.p * z.q; ++i) {
    for (std::int64_t k = 0; k < z.k; ++k) {
      std::int32_t sum = w.bias.data<std::int32_t>()[k];
      for (std::int64_t tap = 0; tap < z.r * z.s; ++tap) {
        const std::int64_t row = z.row(i / z.q % z.p, tap / z.s), column = z.column(i % z.q, tap % z.s);
        const bool inside = row >= 0 && row < z.h && column >= 0 && column < z.w;
        const auto* const pixel =
            inside ? from + ((i / (z.p * z.q) * z.h + row) * z.w + column) * z.c + k / z.group_k() * inner
                   : nullptr;
        const auto* const filter = filters + (k * z.r * z.s + tap) * inner;
        for (std::int64_t c = 0; c < inner; ++c) sum += (inside ? pixel[c] : x_zero) * filter[c];
      }
      y.push_back(w.multiplier.data<float>()[k] * static_cast<float>(sum));
    }
  }
  return y;
}

struct Case {
  const char* name;
  Shape x, w;
  Conv2dParams params = {};
  Layout layout = Layout::dense;
};

void check(const Case& z, std::int32_t x_zero, const Rounding& rounding, bool adds) {
  SCOPED_TRACE(fmt::format("{}: x {} with zero {}, w {}", z.name, z.x, x_zero, z.w));
  const Shape shape = conv2d_shape(z.x, z.w, z.params);
  const Tensor x = stored({z.x, z.layout}, {1}), other = stored({shape, z.layout}, {2});
  const Product w(z.w, {3});
  const std::vector<float> v = convolved({z.x, z.w, shape, z.params}, x, x_zero, w);
  const Int8Weights there(w.weights.to(test::device()), w.multiplier.to(test::device()),
                          w.bias.to(test::device()));
  const Tensor from = on_device_like(x);

  const Tensor real = Tensor::empty(shape, {DType::f32, test::device()});
  kernels::conv2d_int8(context(), z.params, from, x_zero, there, real);
  EXPECT_TRUE(same_bits(real.to(kCpu), Tensor::from(v, shape)));

  const float scale = 0.3f;
  std::vector<std::uint8_t> expected;
  bool low = false, high = false;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const float added = scale * static_cast<float>(other.data<std::uint8_t>()[i] - 100);
    expected.push_back(rounded(adds ? v[i] + added : v[i], rounding));
    low = low || expected.back() == rounding.low, high = high || expected.back() == rounding.high;
  }
  EXPECT_TRUE(v.size() < 200 || (low && high));
  const Int8Residual residual = adds ? Int8Residual{on_device_like(other), scale, 100} : Int8Residual();
  const Tensor y = on_device_like(test::make({shape, z.layout}, DType::u8));
  kernels::conv2d_int8(context(), z.params, from, x_zero, there, residual, rounding, y);
  EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(expected, shape)));
}

/// Whole packets and others; narrow, small and large tiles; a depth that is cut; filters larger than the
/// image.
const Case kCases[] = {
    {"one", {1, 1, 1, 1}, {1, 1, 1, 1}},
    {"a row of a linear layer", {1, 1, 1, 7}, {10, 1, 1, 7}},
    {"rows of a linear layer", {5, 1, 1, 64}, {10, 1, 1, 64}},
    {"1 x 1", {2, 6, 5, 32}, {48, 1, 1, 32}},
    {"1 x 1, few channels", {5, 3, 3, 4}, {17, 1, 1, 4}},
    {"1 x 1 by 2", {1, 9, 8, 16}, {32, 1, 1, 16}, {.stride = {2, 2}}},
    {"1 x 1 with padding", {1, 3, 4, 16}, {16, 1, 1, 16}, {.padding = {1, 2}}},
    {"first layer", {2, 15, 17, 3}, {16, 7, 7, 3}, {.stride = {2, 2}, .padding = {3, 3}}},
    {"3 x 3", {2, 9, 8, 16}, {32, 3, 3, 16}, {.padding = {1, 1}}},
    {"3 x 3, few channels", {1, 6, 7, 17}, {130, 3, 3, 17}, {.padding = {1, 1}}},
    {"3 x 3 off alignment", {1, 7, 6, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}, Layout::misaligned},
    {"not square", {1, 8, 9, 5}, {7, 2, 4, 5}, {.stride = {1, 3}, .padding = {0, 2}}},
    {"dilation", {1, 9, 9, 16}, {16, 3, 3, 16}, {.padding = {2, 2}, .dilation = {2, 2}}},
    {"padding as large as the filter", {1, 2, 2, 16}, {16, 3, 3, 16}, {.padding = {4, 4}}},
    {"groups", {2, 5, 6, 48}, {24, 3, 3, 16}, {.padding = {1, 1}, .groups = 3}},
    {"narrow groups", {1, 5, 5, 12}, {18, 3, 3, 2}, {.padding = {1, 1}, .groups = 6}},
    {"deep", {1, 4, 4, 192}, {32, 3, 3, 192}, {.padding = {1, 1}}},
    {"deep, few channels", {1, 3, 3, 130}, {9, 3, 3, 130}, {.padding = {1, 1}}},
    {"depthwise", {2, 7, 6, 24}, {24, 3, 3, 1}, {.padding = {1, 1}, .groups = 24}},
    {"depthwise by 2", {1, 9, 9, 8}, {8, 5, 5, 1}, {.stride = {2, 2}, .padding = {2, 2}, .groups = 8}},
    {"depthwise, odd", {1, 5, 4, 7}, {7, 3, 3, 1}, {.padding = {1, 1}, .groups = 7}},
    {"depthwise, two of each",
     {1, 5, 4, 6},
     {12, 3, 3, 1},
     {.padding = {1, 1}, .dilation = {1, 2}, .groups = 6}},
    {"depthwise off alignment",
     {1, 4, 5, 16},
     {16, 3, 3, 1},
     {.padding = {1, 1}, .groups = 16},
     Layout::misaligned},
    {"no image", {0, 4, 4, 16}, {16, 3, 3, 16}},
};

TEST_F(Int8OnDevice, ConvolutionsHaveExactSums) {
  for (const Case& z : kCases) {
    for (const std::int32_t x_zero : {0, 7, 255}) check(z, x_zero, {.zero = 128}, false);
  }
}

TEST_F(Int8OnDevice, ResidualsAndBounds) {
  for (const Case& z : kCases) {
    check(z, 128, {.zero = 3, .low = 3}, true);
    check(z, 0, {.zero = 20, .low = 20, .high = 187}, true);
  }
}

TEST_F(Int8OnDevice, LargeTiles) {
  Case z{"large", {1, 9, 8, 2048}, {10240, 1, 1, 16}, {.groups = 128}};
  const cuda::GemmPlan plan(cuda::int8_product({z.x, z.w, conv2d_shape(z.x, z.w, z.params), z.params}, 1), 1);
  EXPECT_EQ(plan.tile, cuda::kLargeTile);
  check(z, 0, {.zero = 100}, true);
  z.params.padding[0] = 1;
  check(z, 9, {.zero = 100}, false);
}

TEST_F(Int8OnDevice, SumsAreExactAtTheirLimits) {
  // 4608 products of 255 and +-127.
  const auto all = []<class T>(const Shape& of, T value) {
    return Tensor::from(std::vector<T>(static_cast<std::size_t>(of.numel()), value), of, test::device());
  };
  const Shape shape{1, 1, 1, 16};
  for (const int sign : {1, -1}) {
    const Int8Weights w(all({16, 3, 3, 512}, static_cast<std::int8_t>(127 * sign)), all({16}, 1.0f),
                        all({16}, std::int32_t{sign}));
    const Tensor y = Tensor::empty(shape, {DType::f32, test::device()});
    kernels::conv2d_int8(context(), {}, all({1, 3, 3, 512}, std::uint8_t{255}), 0, w, y);
    const auto sum = static_cast<float>(sign * (4608 * 255 * 127 + 1));
    EXPECT_TRUE(same_bits(y.to(kCpu), Tensor::from(std::vector<float>(16, sum), shape)));
  }
}

// ---- the other ops

/// Sizes with and without a rest of vectors, and off alignment.
const test::ShapeCase kSizes[] = {{{1}}, {{16}}, {{1003}}, {{40}, Layout::misaligned}, {{0}}};

TEST_F(Int8OnDevice, Quantizes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Quantizer& by : {Quantizer{0.5f, 0}, {0.1f, 128}, {3e-3f, 255}, {1e-30f, 7}}) {
    for (const test::ShapeCase& size : kSizes) {
      const Tensor x = test::filled(size, DType::f32, {1}, -40 * by.scale, 300 * by.scale);
      auto* const values = x.data<float>();
      const float special[] = {kInfinity,    -kInfinity,       NAN,   -0.0f,
                               by.scale / 2, 3 * by.scale / 2, 3e38f, -3e38f};
      for (std::int64_t i = 0; i < std::min<std::int64_t>(x.numel(), 8); ++i) values[i] = special[i];
      std::vector<std::uint8_t> expected;
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        const float v = values[i] / by.scale;
        expected.push_back(std::isnan(v) ? static_cast<std::uint8_t>(by.zero) : rounded(v, {by.zero}));
      }
      const Tensor y = on_device_like(test::make(size, DType::u8));
      kernels::quantize(context(), on_device_like(x), by, y);
      EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(expected, size.shape)));
    }
  }
}

TEST_F(Int8OnDevice, Dequantizes) {
  for (const test::ShapeCase& size : kSizes) {
    const Tensor x = stored(size, {2}), y = on_device_like(test::make(size, DType::f32));
    std::vector<float> expected;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      expected.push_back(0.037f * static_cast<float>(x.data<std::uint8_t>()[i] - 101));
    kernels::dequantize(context(), on_device_like(x), {0.037f, 101}, y);
    EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(expected, size.shape)));
  }
}

TEST_F(Int8OnDevice, Adds) {
  const Rounding rounding{.zero = 9, .low = 9, .high = 240};
  for (const test::ShapeCase& size : kSizes) {
    const Tensor a = stored(size, {3}), b = stored(size, {4});
    std::vector<std::uint8_t> sums, alone;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const float left = 0.75f * static_cast<float>(a.data<std::uint8_t>()[i] - 30),
                  right = 0.31f * static_cast<float>(b.data<std::uint8_t>()[i] - 200);
      sums.push_back(rounded(left + right, rounding));
      alone.push_back(rounded(left, rounding));
    }
    const Tensor y = on_device_like(test::make(size, DType::u8)), from = on_device_like(a);
    kernels::add_int8(context(), from, 0.75f, 30, {on_device_like(b), 0.31f, 200}, rounding, y);
    EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(sums, size.shape)));
    kernels::add_int8(context(), from, 0.75f, 30, {}, rounding, y);
    EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(alone, size.shape)));
  }
}

TEST_F(Int8OnDevice, LooksUp) {
  const Tensor table = stored({{256}}, {5});
  for (const test::ShapeCase& size : kSizes) {
    const Tensor x = stored(size, {6}), y = on_device_like(test::make(size, DType::u8));
    std::vector<std::uint8_t> expected;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      expected.push_back(table.data<std::uint8_t>()[x.data<std::uint8_t>()[i]]);
    kernels::lookup_int8(context(), on_device_like(x), on_device_like(table), y);
    EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(expected, size.shape)));
  }
}

TEST_F(Int8OnDevice, MultipliesByAGate) {
  const Rounding rounding{.zero = 77};
  for (const test::ShapeCase& z :
       {test::ShapeCase{{2, 3, 4, 16}}, {{3, 2, 2, 7}}, {{1, 2, 3, 32}, Layout::misaligned}}) {
    const std::int64_t channels = z.shape[3], pixels = z.shape[1] * z.shape[2];
    const Shape gates{z.shape[0], 1, 1, channels};
    const Tensor x = stored(z, {7}), s = stored({gates}, {8}), y = on_device_like(test::make(z, DType::u8));
    std::vector<std::uint8_t> expected;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const int gate = s.data<std::uint8_t>()[i / (channels * pixels) * channels + i % channels] - 5;
      expected.push_back(
          rounded(0.021f * static_cast<float>((x.data<std::uint8_t>()[i] - 90) * gate), rounding));
    }
    kernels::multiply_int8(context(), on_device_like(x), 90, on_device_like(s), 5, 0.021f, rounding, y);
    EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(expected, z.shape)));
  }
}

struct PoolCase {
  Shape x;
  Pool2dParams params;
  Layout layout = Layout::dense;
};

/// Calls f(element of y, the elements of x in its window).
template <class F> Shape for_windows(const PoolCase& z, const Tensor& x, const F& f) {
  const auto outputs = [&](int i) {
    const std::int64_t extent = z.params.dilation[i] * (z.params.window[i] - 1) + 1;
    return (z.x[1 + i] + 2 * z.params.padding[i] - extent) / z.params.stride[i] + 1;
  };
  const Shape shape{z.x[0], outputs(0), outputs(1), z.x[3]};
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    const std::int64_t c = i % shape[3], q = i / shape[3] % shape[2],
                       p = i / (shape[3] * shape[2]) % shape[1], n = i / (shape[3] * shape[2] * shape[1]);
    std::vector<int> window;
    for (std::int64_t r = 0; r < z.params.window[0]; ++r) {
      for (std::int64_t s = 0; s < z.params.window[1]; ++s) {
        const std::int64_t h = p * z.params.stride[0] - z.params.padding[0] + r * z.params.dilation[0],
                           w = q * z.params.stride[1] - z.params.padding[1] + s * z.params.dilation[1];
        if (h >= 0 && h < z.x[1] && w >= 0 && w < z.x[2])
          window.push_back(x.data<std::uint8_t>()[((n * z.x[1] + h) * z.x[2] + w) * z.x[3] + c]);
      }
    }
    f(window);
  }
  return shape;
}

TEST_F(Int8OnDevice, MaxPools) {
  for (const PoolCase& z :
       {PoolCase{{2, 8, 6, 16}, {}},
        {{1, 9, 7, 32}, {.window = {3, 3}, .padding = {1, 1}}},
        {{2, 7, 9, 5}, {.window = {3, 2}, .stride = {2, 1}, .padding = {1, 1}}},
        {{1, 9, 9, 16}, {.window = {3, 3}, .stride = {1, 2}, .padding = {1, 1}, .dilation = {2, 3}}},
        {{1, 4, 4, 16}, {}, Layout::misaligned}}) {
    const Tensor x = stored({z.x, z.layout}, {9});
    std::vector<std::uint8_t> expected;
    const Shape shape = for_windows(z, x, [&](const std::vector<int>& window) {
      expected.push_back(static_cast<std::uint8_t>(*std::max_element(window.begin(), window.end())));
    });
    const Tensor y = on_device_like(test::make({shape, z.layout}, DType::u8));
    kernels::max_pool2d_int8(context(), z.params, on_device_like(x), y);
    EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(expected, shape))) << fmt::format("{}", z.x);
  }
}

TEST_F(Int8OnDevice, AveragePools) {
  const Rounding rounding{.zero = 12, .low = 2, .high = 250};
  for (const PoolCase& z : {PoolCase{{2, 8, 6, 16}, {}},
                            {{3, 7, 5, 32}, {.window = {7, 5}, .stride = {7, 5}}},
                            {{2, 7, 9, 5}, {.window = {3, 2}, .stride = {2, 1}}},
                            {{1, 4, 4, 16}, {}, Layout::misaligned}}) {
    const Tensor x = stored({z.x, z.layout}, {10});
    const float scale = 1.3f / static_cast<float>(z.params.window[0] * z.params.window[1]);
    std::vector<std::uint8_t> expected;
    const Shape shape = for_windows(z, x, [&](const std::vector<int>& window) {
      int sum = 0;
      for (const int value : window) sum += value - 31;
      expected.push_back(rounded(scale * static_cast<float>(sum), rounding));
    });
    const Tensor y = on_device_like(test::make({shape, z.layout}, DType::u8));
    kernels::avg_pool2d_int8(context(), z.params, on_device_like(x), 31, scale, rounding, y);
    EXPECT_TRUE(same_bits(on_cpu_like(y), Tensor::from(expected, shape))) << fmt::format("{}", z.x);
  }
}

}  // namespace athanor::int8_test
