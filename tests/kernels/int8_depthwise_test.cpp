// 8-bit depthwise convolutions against plain loops: equal bytes, for every number of channels and shape of
// filter, on one thread and on two.
#include <limits>

#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/int8_conv.h"
#include "kernels/cpu/isa.h"
#include "kernels/int8_weights.h"
#include "tests/support/int8_values.h"

namespace athanor {

namespace cpu {
extern const Implementation kInt8Depthwise;
}

namespace int8_depthwise_test {

using kernels::Rounding;
using test::Bytes;

struct Case {
  std::int64_t n, h, w, c, r, s;
  Conv2dParams params = {};
};

Tensor random_weights(const Shape& shape, unsigned seed) {
  const Tensor w = Tensor::empty(shape, {DType::i8});
  std::mt19937 bits(seed);
  for (std::int64_t i = 0; i < w.numel(); ++i)
    w.data<std::int8_t>()[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(bits() % 255) - 127);
  return w;
}

/// The operands of a case, and what the definition makes of them.
class Operands {
 public:
  Operands(const Case& of, std::int32_t zero, const Rounding& rounding, unsigned seed)
      : of_(of),
        zero_(zero),
        rounding_(rounding),
        x_(test::random_u8({of.n, of.h, of.w, of.c}, seed)),
        filters_(random_weights({of.c, of.r, of.s, 1}, seed + 1)),
        multiplier_(Tensor::empty({of.c})),
        bias_(Tensor::empty({of.c}, {DType::i32})) {
    params_.groups = of.c;
    shape_ = conv2d_shape(x_.shape(), filters_.shape(), params_);
    residual_ = test::random_u8(shape_, seed + 2);
    std::mt19937 bits(seed + 3);
    for (std::int64_t c = 0; c < of.c; ++c) {
      multiplier_.data<float>()[c] = 0.001f + 1e-6f * static_cast<float>(bits() % 1000);
      bias_.data<std::int32_t>()[c] = static_cast<std::int32_t>(bits() % 40000) - 20000;
    }
  }

  void fill(std::uint8_t x, std::int8_t w) {
    std::fill_n(x_.data<std::uint8_t>(), x_.numel(), x);
    std::fill_n(filters_.data<std::int8_t>(), filters_.numel(), w);
  }

  void set_multipliers(float value) { std::fill_n(multiplier_.data<float>(), of_.c, value); }

  /// v of each result before it is rounded.
  std::vector<float> reference(bool with_residual) const {
    std::vector<float> values;
    for (std::int64_t i = 0; i < shape_.numel(); ++i) {
      const std::int64_t c = i % of_.c, q = i / of_.c % shape_[2], p = i / of_.c / shape_[2] % shape_[1],
                         n = i / of_.c / shape_[2] / shape_[1];
      std::int32_t sum = bias_.data<std::int32_t>()[c];
      for (std::int64_t r = 0; r < of_.r; ++r)
        for (std::int64_t s = 0; s < of_.s; ++s) {
          const std::int64_t h = p * params_.stride[0] - params_.padding[0] + r * params_.dilation[0],
                             w = q * params_.stride[1] - params_.padding[1] + s * params_.dilation[1];
          const bool inside = h >= 0 && h < of_.h && w >= 0 && w < of_.w;
          const std::int32_t value =
              inside ? x_.data<std::uint8_t>()[((n * of_.h + h) * of_.w + w) * of_.c + c] : zero_;
          sum += value * filters_.data<std::int8_t>()[(c * of_.r + r) * of_.s + s];
        }
      float v = multiplier_.data<float>()[c] * static_cast<float>(sum);
      if (with_residual)
        v = v + kResidualScale * static_cast<float>(residual_.data<std::uint8_t>()[i] - kResidualZero);
      values.push_back(v);
    }
    return values;
  }

  void expect_equal(bool with_residual, const std::string& what) const {
    const Tensor y = Tensor::empty(shape_, {DType::u8}), real = Tensor::empty(shape_);
    Bytes want;
    for (const float v : reference(with_residual)) want.push_back(test::rounded_u8(v, rounding_));
    test::expect_bytes(
        test::on_one_and_two_threads(y, [&](CpuContext& context) { run(context, with_residual, y); }), want,
        what);
    run(cpu_context(), false, real);
    const std::vector<float> values = reference(false);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(real.data<float>()[i], values[i]) << what << ", real element " << i;
  }

 private:
  void run(CpuContext& context, bool with_residual, const Tensor& y) const {
    const ConvSize size(x_.shape(), filters_.shape(), shape_, params_);
    cpu::PrimitiveKey key =
        cpu::conv_key(context, cpu::PrimitiveKey::Op::conv_int8, size, DType::u8, y.dtype());
    key.bias = true;
    key.fused.residual = with_residual;
    key.threads = context.threads();
    ASSERT_TRUE(cpu::kInt8Depthwise.fits(key));
    const cpu::MadePrimitive made = cpu::kInt8Depthwise.make(key);
    const kernels::Int8Weights weights(filters_, multiplier_, bias_);
    const cpu::Int8Operands step{.x_zero = zero_,
                                 .multiplier = multiplier_.data<float>(),
                                 .rounding = rounding_,
                                 .residual_scale = kResidualScale,
                                 .residual_zero = kResidualZero};
    made.primitive->run(context, {.first = x_.raw_data(),
                                  .second = weights.in(made.primitive->int8_layout()),
                                  .bias = bias_.raw_data(),
                                  .out = y.raw_data(),
                                  .residual = with_residual ? residual_.raw_data() : nullptr,
                                  .int8 = &step});
  }

  static constexpr float kResidualScale = 0.83f;
  static constexpr std::int32_t kResidualZero = 100;

  Case of_;
  Conv2dParams params_ = of_.params;
  std::int32_t zero_;
  Rounding rounding_;
  Tensor x_, filters_, multiplier_, bias_, residual_;
  Shape shape_;
};

void expect_case(const Case& of, unsigned number) {
  constexpr std::int32_t kZeros[] = {0, 7, 128, 255};
  const std::string what =
      fmt::format("{} x {} x {} x {}, filter {} x {}, stride {} {}, padding {} {}, dilation {} {}", of.n,
                  of.h, of.w, of.c, of.r, of.s, of.params.stride[0], of.params.stride[1],
                  of.params.padding[0], of.params.padding[1], of.params.dilation[0], of.params.dilation[1]);
  const Operands operands(of, kZeros[number % 4], test::roundings()[number % test::roundings().size()],
                          number);
  operands.expect_equal(number % 3 == 0, what);
}

class Int8Depthwise : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::has_avx2()) GTEST_SKIP() << "the code needs AVX2";
  }
};

TEST_F(Int8Depthwise, EveryNumberOfChannels) {
  for (unsigned c = 1; c <= 130; ++c)
    expect_case({c % 4 == 0 ? 5 : 1, 6, 7, std::int64_t{c}, 3, 3, {.padding = {1, 1}}}, c);
}

TEST_F(Int8Depthwise, EveryFilterAndStride) {
  unsigned number = 0;
  for (const std::int64_t c : {8, 16, 21})
    for (std::int64_t r = 1; r <= 9; ++r)
      for (std::int64_t s = 1; s <= 9; s += 2)
        for (std::int64_t stride = 1; stride <= 3; ++stride)
          expect_case({1, 11, 13, c, r, s, {.stride = {stride, stride}, .padding = {r / 2, s / 2}}},
                      number++);
}

TEST_F(Int8Depthwise, EveryWidth) {
  for (unsigned w = 1; w <= 40; ++w) expect_case({1, 5, std::int64_t{w}, 16, 3, 3, {.padding = {1, 1}}}, w);
}

TEST_F(Int8Depthwise, UnequalAxes) {
  const Case cases[] = {
      {2, 9, 12, 24, 3, 5, {.stride = {2, 1}, .padding = {1, 2}}},
      {2, 9, 12, 24, 5, 3, {.stride = {1, 2}, .padding = {2, 1}}},
      {1, 12, 10, 17, 3, 3, {.padding = {2, 2}, .dilation = {2, 2}}},
      {1, 12, 10, 17, 3, 3, {.stride = {2, 2}, .padding = {3, 1}, .dilation = {3, 1}}},
      {1, 12, 10, 17, 5, 2, {.padding = {0, 4}, .dilation = {1, 4}}},
      {1, 3, 2, 32, 3, 3, {.padding = {5, 6}}},    // results of padding alone
      {2, 1, 1, 16, 5, 5, {.padding = {2, 2}}},    // one pixel
      {1, 70, 3, 8, 66, 1, {}},                    // a long filter
      {3, 40, 41, 48, 3, 3, {.padding = {1, 1}}},  // several threads
  };
  unsigned number = 0;
  for (const Case& of : cases)
    for (int turn = 0; turn < 6; ++turn) expect_case(of, number++);
}

TEST_F(Int8Depthwise, ExtremeValues) {
  for (const std::uint8_t x : {0, 255}) {
    for (const std::int8_t w : {-127, 127}) {
      for (const std::int32_t zero : {0, 255}) {
        for (const Rounding& rounding : test::roundings()) {
          Operands operands({1, 8, 8, 20, 7, 7, {.padding = {3, 3}}}, zero, rounding, 1);
          operands.fill(x, w);
          operands.expect_equal(true, fmt::format("x {}, w {}, zero {}", x, w, zero));
        }
      }
    }
  }
}

// Beyond an i16 and an i32.
TEST_F(Int8Depthwise, ClampsWhatNoIntegerHolds) {
  for (const float multiplier : {std::numeric_limits<float>::infinity(), 3e38f, 100.0f, -100.0f, -3e38f}) {
    for (const Rounding& rounding : test::roundings()) {
      Operands operands({1, 8, 8, 20, 3, 3, {.padding = {1, 1}}}, 3, rounding, 1);
      operands.set_multipliers(multiplier);
      operands.expect_equal(true, fmt::format("multiplier {}, zero {}", multiplier, rounding.zero));
    }
  }
}

}  // namespace int8_depthwise_test
}  // namespace athanor
