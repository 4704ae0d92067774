// On the CPU: a convolution that also sums its channels, and a batch norm that reads those sums instead of y.
#include "autograd/detail/conv_norm_parts.h"
#include "kernels/conv.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "tests/support/conv_values.h"
#include "tests/support/ops.h"

namespace athanor::conv_sums_test {

using test::ConvCase;
using test::name;
using test::values;

class ConvSums : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::has_avx2()) GTEST_SKIP() << "Winograd's code needs AVX2";
  }
};

struct Found {
  bool fused;
  Tensor y, sums;
};

Found run(const Tensor& x, const Tensor& w, const Conv2dParams& params) {
  const Shape shape = conv2d_shape(x.shape(), w.shape(), params);
  Found found{false, Tensor::empty(shape, x.options()), Tensor::empty({2, shape[3]}, {DType::f64})};
  found.fused = kernels::conv2d_forward_sums(cpu_context(), params, x, w, found.y, found.sums);
  return found;
}

// Whole tiles and parts of them, groups of four and the rest, a panel and a half, threads that share tiles
// and threads that share panels.
const ConvCase kCases[] = {{{3, 16, 16, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},
                           {{5, 7, 9, 32}, {48, 3, 3, 32}, {.padding = {1, 1}}},
                           {{2, 5, 6, 16}, {32, 3, 3, 16}, {}},
                           {{1, 9, 9, 64}, {128, 3, 3, 64}, {.padding = {2, 0}}},
                           {{33, 4, 4, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}}};

constexpr double kRounding = 8 * 0x1p-24;  // of sums over four tiles, in f32

/// Each channel's sum of y, in double, then that of its squares.
std::vector<double> sums_of(const Tensor& y) {
  const std::vector<double> all = y.to_vector();
  const auto channels = static_cast<std::size_t>(y.dim(-1));
  std::vector<double> sums(2 * channels);
  for (std::size_t i = 0; i < all.size(); ++i) {
    sums[i % channels] += all[i];
    sums[channels + i % channels] += all[i] * all[i];
  }
  return sums;
}

TEST_F(ConvSums, AreThoseOfTheValuesAsTheyAreRounded) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const ConvCase& c : kCases) {
      SCOPED_TRACE(name(c, dtype, ConvImpl::winograd));
      Conv2dParams params = c.params;
      params.impl = ConvImpl::winograd;
      const Tensor x = values(c.x, dtype, 1), w = values(c.w, dtype, 2);
      const auto [fused, y, sums] = run(x, w, params);
      ASSERT_TRUE(fused);
      const Tensor plain = empty_like(y);
      kernels::conv2d_forward(cpu_context(), params, x, w, {}, plain);
      EXPECT_TRUE(test::same_bits(y, plain));

      const std::vector<double> expected = sums_of(y), found = sums.to_vector();
      const auto channels = static_cast<std::size_t>(y.dim(-1));
      for (std::size_t i = 0; i < channels; ++i) {
        const double n = static_cast<double>(y.numel()) / static_cast<double>(channels);
        EXPECT_NEAR(found[i], expected[i], kRounding * std::sqrt(n * expected[channels + i])) << i;
        EXPECT_NEAR(found[channels + i], expected[channels + i], kRounding * expected[channels + i]) << i;
      }
    }
  }
}

TEST_F(ConvSums, DoNotDependOnTheNumberOfThreads) {
  for (const ConvCase& c : kCases) {
    Conv2dParams params = c.params;
    params.impl = ConvImpl::winograd;
    const Tensor x = test::rounded_values(c.x, DType::f32, 1), w = test::rounded_values(c.w, DType::f32, 2);
    test::expect_same_by_threads([&] { return std::vector{run(x, w, params).sums}; }, {2, 3});
  }
}

// A mean of 3,000 standard deviations: sums of squares in f32 would have nothing of the variance.
TEST_F(ConvSums, KeepASmallVarianceBesideALargeMean) {
  const Tensor x = values({8, 16, 16, 16}, DType::f32, 1), w = Tensor::zeros({16, 3, 3, 16});
  for (std::int64_t c = 0; c < 16; ++c) w.data<float>()[((c * 3 + 1) * 3 + 1) * 16 + c] = 1;  // y is x
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 1000 + x.data<float>()[i] / 2;
  const auto [fused, y, sums] = run(x, w, {.padding = {1, 1}, .impl = ConvImpl::winograd});
  ASSERT_TRUE(fused);
  const std::vector<double> expected = sums_of(y), found = sums.to_vector();
  const double n = 8 * 16 * 16;
  const auto variance = [n](double sum, double squares) { return squares / n - sum / n * (sum / n); };
  for (std::size_t c = 0; c < 16; ++c) {
    const double exact = variance(expected[c], expected[16 + c]);
    EXPECT_NEAR(variance(found[c], found[16 + c]), exact, 1e-4 * exact) << c;
  }
}

TEST_F(ConvSums, NothingIsDoneWhereWinogradsAlgorithmIsNotUsed) {
  const auto refused = [](const ConvCase& c, DType dtype) {
    return !run(values(c.x, dtype, 1), values(c.w, dtype, 2), c.params).fused;
  };
  const ConvCase good{{3, 16, 16, 32}, {32, 3, 3, 32}, {.padding = {1, 1}, .impl = ConvImpl::winograd}};
  EXPECT_FALSE(refused(good, DType::f32));
  EXPECT_TRUE(refused({good.x, {32, 3, 3, 32}, {.padding = {1, 1}, .impl = ConvImpl::vendor}}, DType::f32));
  EXPECT_TRUE(refused({good.x, good.w, {.stride = {2, 2}, .padding = {1, 1}}}, DType::f32));
  EXPECT_TRUE(refused({good.x, {32, 1, 1, 32}, {}}, DType::f32));
  EXPECT_TRUE(refused({good.x, {32, 3, 3, 16}, {.groups = 2}}, DType::f32));
  EXPECT_TRUE(refused({good.x, good.w, {.padding = {1, 1}, .activation = Activation::relu}}, DType::f32));
  EXPECT_TRUE(refused({good.x, good.w, {.padding = {1, 1}}}, DType::f64));
  EXPECT_TRUE(refused({{0, 16, 16, 32}, good.w, good.params}, DType::f32));
  EXPECT_TRUE(refused({{3, 16, 16, 0}, {32, 3, 3, 0}, {.padding = {1, 1}}}, DType::f32));
}

struct Outcome {
  Tensor y, dx, dw, dgamma, mean, var;
};

Outcome train(bool as_one_op, const Tensor& residual) {
  const Tensor x = values({9, 16, 16, 16}, DType::f32, 1), w = values({16, 3, 3, 16}, DType::f32, 2);
  const Tensor gamma = values({16}, DType::f32, 3), beta = values({16}, DType::f32, 4);
  const Tensor mean = Tensor::zeros({16}), var = ones({16}, {}), no_bias;
  for (const Tensor& leaf : {x, w, gamma, beta}) require_grad(leaf);
  const Conv2dParams same{.padding = {1, 1}};
  const BatchNormParams params{.activation = Activation::relu};
  const Tensor y = as_one_op
                       ? conv_norm(x, {w, no_bias, same}, {gamma, beta, mean, var, true, params}, residual)
                       : batch_norm(conv2d(x, w, {}, same), gamma, beta, mean, var, true, params, residual);
  backward(y, values(y.shape(), DType::f32, 5));
  return {y.detach(), grad_of(x), grad_of(w), grad_of(gamma), mean, var};
}

TEST_F(ConvSums, ANormOfThemIsThatOfTheValues) {
  for (const bool with_residual : {false, true}) {
    const Tensor residual = with_residual ? values({9, 16, 16, 16}, DType::f32, 6) : Tensor();
    const Outcome apart = train(false, residual), together = train(true, residual);
    EXPECT_TRUE(test::close(together.y, apart.y, 1e-6));
    EXPECT_TRUE(test::close(together.dx, apart.dx, 1e-5));
    EXPECT_TRUE(test::close(together.dw, apart.dw, 1e-5));
    EXPECT_TRUE(test::close(together.dgamma, apart.dgamma, 1e-5));
    EXPECT_TRUE(test::close(together.mean, apart.mean, 1e-5));  // of a mean that is close to 0
    EXPECT_TRUE(test::close(together.var, apart.var, 1e-6));
  }
}

TEST_F(ConvSums, AreThoseOfConvolutionsWithoutBiasAndActivation) {
  const Tensor x = values({9, 16, 16, 16}, DType::f32, 1), w = values({16, 3, 3, 16}, DType::f32, 2);
  const auto sums_of_conv = [&](const Tensor& bias, const Conv2dParams& params) {
    Tensor sums;
    (void)detail::conv2d_with_sums(x, w, bias, params, sums);
    return sums.defined();
  };
  EXPECT_TRUE(sums_of_conv({}, {.padding = {1, 1}}));
  EXPECT_TRUE(sums_of_conv({}, {.same_padding = true}));
  EXPECT_FALSE(sums_of_conv(values({16}, DType::f32, 3), {.padding = {1, 1}}));
  EXPECT_FALSE(sums_of_conv({}, {.padding = {1, 1}, .activation = Activation::relu}));
}

// A norm in f32 reads the convolution's rounded values, and a norm in evaluation none but the running ones.
TEST_F(ConvSums, OtherNormsHaveTheBitsOfTwoOps) {
  const Tensor x = values({9, 16, 16, 16}, DType::f16, 1), w = values({16, 3, 3, 16}, DType::f16, 2);
  const Tensor gamma = values({16}, DType::f32, 3), beta = values({16}, DType::f32, 4), no_bias;
  const Conv2dParams same{.padding = {1, 1}};
  const BatchNormParams params{.activation = Activation::relu};
  const auto norm_of = [&](const Tensor& y, bool training) {
    return batch_norm(y, gamma, beta, Tensor::zeros({16}), ones({16}, {}), training, params);
  };
  const auto one_op = [&](bool training, bool in_f32) {
    const Tensor mean = Tensor::zeros({16}), var = ones({16}, {});
    return conv_norm(x, {w, no_bias, same}, {gamma, beta, mean, var, training, params, in_f32});
  };
  const Tensor y = conv2d(x, w, {}, same);
  EXPECT_TRUE(test::same_bits(one_op(true, true), cast(norm_of(cast(y, DType::f32), true), DType::f16)));
  EXPECT_TRUE(test::same_bits(one_op(false, false), norm_of(y, false)));
}

}  // namespace athanor::conv_sums_test
