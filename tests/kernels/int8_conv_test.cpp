// Every implementation of 8-bit convolutions against sums of integers, in equal bytes: a new one is tested by
// being in the list.
#include "kernels/cpu/int8_conv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/primitive_cache.h"
#include "kernels/int8_weights.h"

namespace athanor::int8_conv_test {

using cpu::Int8Operands;
using kernels::Int8Residual;
using kernels::Int8Weights;
using kernels::Rounding;

struct Case {
  Shape x, w;  ///< [N, H, W, C], [K, R, S, C / groups]
  Conv2dParams params = {};
};

std::string name_of(const Case& one) {
  const Conv2dParams& p = one.params;
  return fmt::format("x {} w {} stride {} {} padding {} {} dilation {} {} groups {}", one.x, one.w,
                     p.stride[0], p.stride[1], p.padding[0], p.padding[1], p.dilation[0], p.dilation[1],
                     p.groups);
}

/// Sizes at which the code of some implementation changes: values of a word, vectors, runs, blocks, items.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t c : {1, 3, 4, 7, 17, 64})
    for (const std::int64_t k : {1, 10, 16, 17, 130}) {
      all.push_back({{1, 5, 6, c}, {k, 3, 3, c}, {.padding = {1, 1}}});
      all.push_back({{5, 1, 1, c}, {k, 1, 1, c}});
    }
  const std::vector<Case> more = {
      {{1, 1, 1, 512}, {1000, 1, 1, 512}},  // linear layers: one row, and more than a run
      {{2, 1, 1, 64}, {33, 1, 1, 64}},
      {{64, 1, 1, 40}, {48, 1, 1, 40}},
      {{131, 1, 1, 3}, {20, 1, 1, 3}},
      {{3, 9, 11, 8}, {32, 1, 1, 8}, {.stride = {2, 2}}},
      {{3, 9, 11, 8}, {32, 1, 1, 8}, {.padding = {1, 2}}},
      {{2, 15, 14, 3}, {64, 7, 7, 3}, {.stride = {2, 2}, .padding = {3, 3}}},
      {{5, 7, 7, 24}, {48, 3, 3, 24}, {.padding = {1, 1}}},
      {{5, 14, 14, 16}, {64, 3, 3, 16}, {.padding = {1, 1}}},
      {{3, 8, 8, 20}, {36, 3, 3, 20}},  // in place
      {{2, 9, 8, 12}, {24, 5, 3, 12}, {.stride = {1, 2}, .padding = {2, 0}, .dilation = {2, 1}}},
      {{2, 9, 12, 12}, {24, 3, 5, 12}, {.stride = {2, 1}, .padding = {0, 2}, .dilation = {1, 2}}},
      {{2, 10, 9, 4}, {7, 2, 2, 4}, {.dilation = {3, 4}}},
      {{1, 2, 3, 5}, {18, 3, 3, 5}, {.padding = {5, 4}}},                    // pixels of padding alone
      {{1, 1, 1, 4}, {16, 1, 1, 4}, {.stride = {3, 2}, .padding = {7, 6}}},  // more padding than filter
      {{2, 6, 7, 12}, {24, 3, 3, 4}, {.padding = {1, 1}, .groups = 3}},
      {{2, 6, 7, 12}, {24, 3, 3, 3}, {.padding = {1, 1}, .groups = 4}},
      {{2, 6, 7, 64}, {64, 3, 3, 32}, {.padding = {1, 1}, .groups = 2}},
      {{1, 6, 5, 64}, {96, 1, 1, 32}, {.groups = 2}},  // in place, blocks of both sizes
      {{2, 6, 7, 10}, {10, 3, 3, 1}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 10}},
      {{2, 5, 5, 6}, {12, 3, 3, 1}, {.padding = {1, 1}, .groups = 6}},
      {{1, 150, 130, 9}, {2, 3, 3, 9}, {.padding = {1, 1}}},   // bands of rows
      {{1, 3, 1500, 33}, {3, 1, 3, 33}, {.padding = {0, 1}}},  // parts of rows
      {{9, 20, 20, 40}, {4, 3, 3, 40}, {.padding = {1, 1}}},   // several images in an item
      {{1, 50, 50, 64}, {32, 1, 1, 64}},                       // parts of a row of all pixels
      {{1, 7, 7, 64}, {256, 3, 3, 64}, {.padding = {1, 1}}},   // few pixels, many blocks
      {{4, 7, 7, 96}, {130, 1, 1, 96}},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Which values the operands have.
struct Values {
  int x_zero = 0;
  bool extreme = false;  ///< x is 0 or 255, w is -127 or 127
  bool residual = false;
  Rounding rounding = {};
  bool rounds = true;
};
const Values kValues[] = {
    {.x_zero = 0},
    {.x_zero = 7, .residual = true, .rounding = {.zero = 3, .low = 3}},
    {.x_zero = 128, .extreme = true, .rounding = {.zero = 128}},
    {.x_zero = 255, .extreme = true, .residual = true, .rounding = {.zero = 255, .low = 20, .high = 240}},
    {.x_zero = 9, .rounding = {}, .rounds = false},
};

/// A convolution, its operands in memory of exactly their size, and what it gives.
struct Problem {
  ConvSize size;
  std::vector<std::uint8_t> x, residual;
  Tensor w, multiplier, bias;
  Int8Operands step;
  std::vector<std::uint8_t> want;  ///< bytes of y
  std::vector<std::int32_t> sums;

  Problem(const Case& one, const Values& values, unsigned seed)
      : size(one.x, one.w, conv2d_shape(one.x, one.w, one.params), one.params) {
    std::mt19937 bits(seed);
    const auto up_to = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(bits);
    };
    x.resize(static_cast<std::size_t>(one.x.numel()));
    for (std::uint8_t& value : x)
      value = static_cast<std::uint8_t>(values.extreme ? up_to(0, 1) * 255 : up_to(0, 255));
    w = Tensor::empty(one.w, {DType::i8});
    for (std::int64_t i = 0; i < w.numel(); ++i)
      w.data<std::int8_t>()[i] =
          static_cast<std::int8_t>(values.extreme ? up_to(0, 1) * 254 - 127 : up_to(-127, 127));
    multiplier = Tensor::empty({size.k}), bias = Tensor::empty({size.k}, {DType::i32});
    const double deviation = 127 * 74 * std::sqrt(static_cast<double>(one.w.numel() / one.w[0]));
    for (std::int64_t k = 0; k < size.k; ++k) {
      multiplier.data<float>()[k] = static_cast<float>((100 + up_to(-50, 50)) / deviation);
      bias.data<std::int32_t>()[k] = up_to(-2000, 2000);
    }
    step = {.x_zero = values.x_zero, .multiplier = multiplier.data<float>(), .rounding = values.rounding};
    compute_sums();
    if (values.residual) {
      step.residual_scale = 0.37f, step.residual_zero = 11;
      residual.resize(sums.size());
      for (std::uint8_t& value : residual) value = static_cast<std::uint8_t>(up_to(0, 255));
    }
    if (values.rounds)
      round_sums();
    else
      scale_sums();
  }

  void compute_sums() {
    const ConvSize& z = size;
    for (std::int64_t n = 0; n < z.n; ++n)
      for (std::int64_t p = 0; p < z.p; ++p)
        for (std::int64_t q = 0; q < z.q; ++q)
          for (std::int64_t k = 0; k < z.k; ++k) {
            std::int32_t sum = bias.data<std::int32_t>()[k];
            for (std::int64_t r = 0; r < z.r; ++r)
              for (std::int64_t s = 0; s < z.s; ++s) {
                const std::int64_t row = z.row(p, r), column = z.column(q, s), group = k / z.group_k();
                const bool inside = row >= 0 && row < z.h && column >= 0 && column < z.w;
                const std::size_t pixel = static_cast<std::size_t>(
                    inside ? ((n * z.h + row) * z.w + column) * z.c + group * z.group_c() : 0);
                const std::int8_t* const weight =
                    w.data<std::int8_t>() + ((k * z.r + r) * z.s + s) * z.group_c();
                for (std::int64_t c = 0; c < z.group_c(); ++c)
                  sum += (inside ? x[pixel + static_cast<std::size_t>(c)] : step.x_zero) * weight[c];
              }
            sums.push_back(sum);
          }
  }
  float scaled(std::size_t i) const {
    return step.multiplier[i % static_cast<std::size_t>(size.k)] * static_cast<float>(sums[i]);
  }
  void round_sums() {
    const auto [zero, low, high] = step.rounding;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float value = scaled(i);
      if (!residual.empty()) {
        const float more = step.residual_scale * static_cast<float>(residual[i] - step.residual_zero);
        value += more;
      }
      const double integer = std::nearbyint(static_cast<double>(value)) + zero;
      want.push_back(static_cast<std::uint8_t>(std::clamp<double>(integer, low, high)));
    }
  }
  void scale_sums() {
    want.resize(sums.size() * sizeof(float));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float value = scaled(i);
      std::memcpy(want.data() + i * sizeof(float), &value, sizeof value);
    }
  }
};

/// What an implementation gives, and the bytes after it, which it may not write.
std::vector<std::uint8_t> result_of(CpuContext& context, const cpu::Implementation& by,
                                    const Problem& problem, bool rounds) {
  cpu::PrimitiveKey key = cpu::conv_key(context, cpu::PrimitiveKey::Op::conv_int8, problem.size, DType::u8,
                                        rounds ? DType::u8 : DType::f32);
  key.by = &by;
  key.threads = context.threads();
  key.bias = true;
  key.fused.residual = !problem.residual.empty();
  const cpu::MadePrimitive made = by.make(key);
  EXPECT_TRUE(made.primitive) << by.name;
  const Int8Weights weights(problem.w, problem.multiplier, problem.bias);
  const auto layout = made.primitive->int8_layout();
  std::vector<std::uint8_t> y(problem.want.size() + 64, 0xa5);
  made.primitive->run(context, {.first = problem.x.data(),
                                .second = layout ? weights.in(layout) : problem.w.raw_data(),
                                .bias = problem.bias.raw_data(),
                                .out = y.data(),
                                .residual = problem.residual.empty() ? nullptr : problem.residual.data(),
                                .int8 = &problem.step});
  EXPECT_TRUE(std::all_of(y.end() - 64, y.end(), [](std::uint8_t byte) { return byte == 0xa5; }));
  y.resize(problem.want.size());
  return y;
}

bool fits(const cpu::Implementation& by, CpuContext& context, const Problem& problem, bool rounds) {
  const cpu::PrimitiveKey key = cpu::conv_key(context, cpu::PrimitiveKey::Op::conv_int8, problem.size,
                                              DType::u8, rounds ? DType::u8 : DType::f32);
  return by.fits(key);
}

void expect_equal_bytes(const std::vector<Case>& all, int threads) {
  CpuContext context;
  context.set_threads(threads);
  unsigned seed = 0;
  for (const Case& one : all) {
    for (const Values& values : kValues) {
      const Problem problem(one, values, ++seed);
      for (const cpu::ListEntry& entry : cpu::int8_conv_list()) {
        if (!fits(*entry.implementation, context, problem, values.rounds)) continue;
        const std::vector<std::uint8_t> got =
            result_of(context, *entry.implementation, problem, values.rounds);
        const auto wrong = std::mismatch(got.begin(), got.end(), problem.want.begin());
        ASSERT_TRUE(wrong.first == got.end())
            << entry.implementation->name << ", " << name_of(one) << ", x_zero " << values.x_zero << ": ["
            << wrong.first - got.begin() << "] is " << int{*wrong.first} << ", not " << int{*wrong.second};
      }
    }
  }
}

TEST(Int8Conv, EveryImplementationGivesTheDefinition) {
  expect_equal_bytes(cases(), 1);
}

TEST(Int8Conv, ThreadsGiveTheSameBytes) {
  expect_equal_bytes({{{5, 12, 13, 16}, {40, 3, 3, 16}, {.padding = {1, 1}}},
                      {{1, 7, 7, 64}, {128, 3, 3, 64}, {.padding = {1, 1}}},
                      {{1, 60, 60, 16}, {16, 1, 1, 16}},
                      {{2, 1, 1, 100}, {300, 1, 1, 100}},
                      {{1, 9, 300, 8}, {17, 3, 3, 8}, {.padding = {1, 1}}}},
                     3);
}

TEST(Int8Conv, AllSizesOfSmallImages) {
  std::vector<Case> all;
  for (std::int64_t h = 1; h <= 3; ++h)
    for (std::int64_t w = 1; w <= 9; ++w)
      for (const std::int64_t padding : {0, 1, 2})
        for (const std::int64_t stride : {1, 2})
          if (h + 2 * padding >= 3 && w + 2 * padding >= 3)
            all.push_back(
                {{2, h, w, 5}, {18, 3, 3, 5}, {.stride = {stride, stride}, .padding = {padding, padding}}});
  expect_equal_bytes(all, 1);
}

// An f32 has no bits for all of such a sum: code that passes it through one gives another value.
TEST(Int8Conv, SumsAreExactBeyondWhatAFloatHolds) {
  CpuContext context;
  context.set_threads(1);
  Problem problem({{1, 3, 11, 64}, {18, 3, 3, 64}}, {.rounds = false}, 1);
  std::fill(problem.x.begin(), problem.x.end(), std::uint8_t{255});
  problem.x.back() = 254;
  std::fill_n(problem.w.data<std::int8_t>(), problem.w.numel(), std::int8_t{127});
  for (std::int64_t k = 0; k < 18; ++k) {
    problem.bias.data<std::int32_t>()[k] = static_cast<std::int32_t>(-127 * 255 * 9 * 64 - k);
    problem.multiplier.data<float>()[k] = 1;
  }
  problem.sums.clear();
  problem.compute_sums();
  problem.scale_sums();
  for (const cpu::ListEntry& entry : cpu::int8_conv_list()) {
    if (!fits(*entry.implementation, context, problem, false)) continue;
    EXPECT_EQ(result_of(context, *entry.implementation, problem, false), problem.want)
        << entry.implementation->name;
  }
}

// Values far beyond those of a byte, of an i16 and of an i32, where a conversion to an integer has no result.
TEST(Int8Conv, ClampsWhatNoIntegerHolds) {
  CpuContext context;
  context.set_threads(1);
  for (const float multiplier :
       {std::numeric_limits<float>::infinity(), 3e38f, 1e9f, -3e38f, -100.0f, 0.0f}) {
    for (const Rounding& rounding : {Rounding{.zero = 5, .low = 2, .high = 250}, {.zero = 255, .low = 255}}) {
      Problem problem({{1, 1, 20, 4}, {48, 1, 1, 4}}, {.rounding = rounding}, 1);
      for (std::int64_t k = 0; k < 48; ++k)
        if (k % 3 != 0) problem.multiplier.data<float>()[k] = multiplier;
      problem.want.clear();
      problem.round_sums();
      for (const cpu::ListEntry& entry : cpu::int8_conv_list()) {
        if (!fits(*entry.implementation, context, problem, true)) continue;
        EXPECT_EQ(result_of(context, *entry.implementation, problem, true), problem.want)
            << entry.implementation->name << ", " << multiplier << ", zero " << rounding.zero;
      }
    }
  }
}

Tensor tensor_of(const std::vector<std::uint8_t>& values, const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, {DType::u8});
  std::copy(values.begin(), values.end(), tensor.data<std::uint8_t>());
  return tensor;
}

TEST(Int8Conv, KernelsPassAllOnAndMakeALayoutOnce) {
  const Case one{{2, 9, 8, 12}, {24, 3, 3, 12}, {.stride = {2, 1}, .padding = {1, 1}}};
  const Shape shape = conv2d_shape(one.x, one.w, one.params);
  for (const Values& values : kValues) {
    const Problem problem(one, values, 3);
    const Int8Weights weights(problem.w, problem.multiplier, problem.bias);
    const Tensor x = tensor_of(problem.x, one.x);
    const Tensor y = Tensor::empty(shape, {values.rounds ? DType::u8 : DType::f32});
    for (int i = 0; i < 2; ++i) {
      std::memset(y.raw_data(), 0, problem.want.size());
      if (values.rounds) {
        Int8Residual residual{{}, problem.step.residual_scale, problem.step.residual_zero};
        if (values.residual) residual.tensor = tensor_of(problem.residual, shape);
        kernels::conv2d_int8(cpu_context(), one.params, x, values.x_zero, weights, residual, values.rounding,
                             y);
      } else {
        kernels::conv2d_int8(cpu_context(), one.params, x, values.x_zero, weights, y);
      }
      EXPECT_EQ(std::memcmp(y.raw_data(), problem.want.data(), problem.want.size()), 0) << values.x_zero;
    }
  }
}

}  // namespace athanor::int8_conv_test
