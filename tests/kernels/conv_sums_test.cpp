// On the CPU: a convolution that also sums its channels, and a batch norm that reads those sums instead of y.
#include <initializer_list>

#include "kernels/conv.h"
#include "kernels/cpu/isa.h"
#include "nn/conv_norm.h"
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
  bool summed = false;
};

Outcome train(bool fused, const Tensor& residual) {
  const Tensor x = values({9, 16, 16, 16}, DType::f32, 1), w = values({16, 3, 3, 16}, DType::f32, 2);
  const Tensor gamma = values({16}, DType::f32, 3), beta = values({16}, DType::f32, 4);
  const Tensor mean = Tensor::zeros({16}), var = ones({16}, {});
  for (const Tensor& leaf : {x, w, gamma, beta}) require_grad(leaf);
  const Conv2dParams same{.padding = {1, 1}};
  const ConvAndSums found =
      fused ? conv2d_with_sums(x, w, {}, same) : ConvAndSums{conv2d(x, w, {}, same), {}};
  BatchNormParams params;
  params.activation = Activation::relu;
  params.sums = found.sums;
  const Tensor y = batch_norm(found.y, gamma, beta, mean, var, true, params, residual);
  backward(y, values(y.shape(), DType::f32, 5));
  return {y.detach(), grad_of(x), grad_of(w), grad_of(gamma), mean, var, found.sums.defined()};
}

TEST_F(ConvSums, ANormOfThemIsThatOfTheValues) {
  for (const bool with_residual : {false, true}) {
    const Tensor residual = with_residual ? values({9, 16, 16, 16}, DType::f32, 6) : Tensor();
    const Outcome apart = train(false, residual), together = train(true, residual);
    EXPECT_FALSE(apart.summed);
    EXPECT_TRUE(together.summed);
    EXPECT_TRUE(test::close(together.y, apart.y, 1e-6));
    EXPECT_TRUE(test::close(together.dx, apart.dx, 1e-5));
    EXPECT_TRUE(test::close(together.dw, apart.dw, 1e-5));
    EXPECT_TRUE(test::close(together.dgamma, apart.dgamma, 1e-5));
    EXPECT_TRUE(test::close(together.mean, apart.mean, 1e-5));  // of a mean that is close to 0
    EXPECT_TRUE(test::close(together.var, apart.var, 1e-6));
  }
}

TEST_F(ConvSums, LayersHandThemOverInTrainingAlone) {
  nn::Conv2d conv(16, 16, 3, {.padding = 1, .bias = false}), biased(16, 16, 3, {.padding = 1});
  nn::BatchNorm norm(16);
  for (nn::Module* const module : std::initializer_list<nn::Module*>{&conv, &biased, &norm})
    module->initialize(1);
  const Tensor x = values({9, 16, 16, 16}, DType::f32, 1);
  EXPECT_TRUE(nn::with_sums(conv, norm, x).sums.defined());
  EXPECT_FALSE(nn::with_sums(biased, norm, x).sums.defined());
  norm.eval();
  EXPECT_FALSE(nn::with_sums(conv, norm, x).sums.defined());
}

}  // namespace athanor::conv_sums_test
