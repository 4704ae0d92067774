#include "nn/group_norm.h"

#include "tests/support/norm_reference.h"

namespace athanor::group_norm_test {

using test::cast_to;
using test::close;
using test::epsilon_of;
using test::stats_dtype;
using test::wave;

struct Case {
  Shape shape;
  std::int64_t groups;
};

// One group, a group for every channel, and between; one pixel; several chunks; more axes and none.
const Case kCases[] = {{{2, 3, 4, 6}, 3},    {{2, 3, 4, 6}, 1},   {{3, 5, 3, 6}, 6},     {{1, 40, 40, 2}, 2},
                       {{2, 1, 1, 8}, 2},    {{1, 33, 31, 1}, 1}, {{2, 7, 10}, 5},       {{4, 12}, 3},
                       {{2, 2, 3, 2, 4}, 2}, {{2, 9, 7, 96}, 32}, {{1, 2, 2, 1030}, 103}};

TEST(GroupNorm, ValuesWorkedOutByHand) {
  // Two pixels of four channels: the first two hold 1 3 / 3 1, the others 0 0 / 0 8.
  const Tensor x = Tensor::from(std::vector<float>{1, 3, 0, 0, 3, 1, 0, 8}, {1, 2, 4});
  const double low = -2 / std::sqrt(12.0), high = 6 / std::sqrt(12.0);
  EXPECT_TRUE(
      close(group_norm(x, 2, {}, {}, 0), std::vector<double>{-1, 1, low, low, 1, -1, low, high}, 1e-6));
  const Tensor gamma = Tensor::from(std::vector<float>{2, 3, 1, 1}, {4}),
               beta = Tensor::from(std::vector<float>{5, -1, 0, 0}, {4});
  EXPECT_TRUE(
      close(group_norm(x, 2, gamma, beta, 0), std::vector<double>{3, 2, low, low, 7, -4, low, high}, 1e-6));
  const Tensor two = Tensor::from(std::vector<float>{1, 10, 3, 30}, {1, 2, 1, 2});
  EXPECT_TRUE(close(instance_norm(two, {}, {}, 0), std::vector<double>{-1, -1, 1, 1}, 1e-6));
}

TEST(GroupNorm, EveryPassMatchesDoubleReference) {
  for (const Case& c : kCases) {
    for (const DType dtype : test::kFloating) {
      SCOPED_TRACE(fmt::format("{} in {} {}", c.shape, c.groups, dtype));
      const Tensor x = require_grad(cast_to(wave(c.shape, 2), dtype)),
                   dy = cast_to(wave(c.shape, 0.3, 4), dtype);
      const test::NormParameters norm(c.shape[c.shape.rank() - 1], stats_dtype(dtype));
      const test::NormReference expected(x, c.groups, norm.gamma, norm.beta, dy, 1e-5);
      const Tensor y = group_norm(x, c.groups, norm.gamma, norm.beta);
      backward(y, dy);
      const double sums = 64 * epsilon_of(stats_dtype(dtype));
      EXPECT_TRUE(close(y, expected.y, epsilon_of(dtype) + sums));
      EXPECT_TRUE(close(grad_of(x), expected.dx, epsilon_of(dtype) + sums));
      EXPECT_TRUE(close(grad_of(norm.gamma), expected.dgamma, sums));
      EXPECT_TRUE(close(grad_of(norm.beta), expected.dbeta, sums));
    }
  }
}

// A mean 4000 times the deviation, which sums of squares would lose altogether. The mean itself is f32.
TEST(GroupNorm, SmallDeviationsFromALargeMean) {
  const Tensor exact = wave({2, 16, 16, 8}, 4000), x = cast_to(exact, DType::f32);
  const Tensor one = Tensor::from(std::vector<double>(8, 1), {8}), zero = Tensor::zeros({8});
  const test::NormReference expected(x, 2, one, zero, exact, 1e-5);
  EXPECT_TRUE(close(group_norm(x, 2), expected.y, 1e-3));
}

TEST(GroupNorm, EpsIsADouble) {
  const Tensor x = wave({1, 3, 2, 2});
  const Tensor one = Tensor::from(std::vector<double>(2, 1), {2}), zero = Tensor::zeros({2});
  EXPECT_TRUE(close(group_norm(x, 1, {}, {}, 0.1), test::NormReference(x, 1, one, zero, x, 0.1).y, 1e-14));
}

TEST(GroupNorm, ParameterGradientsAreWrittenAndThenAdded) {
  const Tensor x = cast_to(wave({3, 5, 4, 6}, 1), DType::f32),
               dy = cast_to(wave({3, 5, 4, 6}, 0.3, 4), DType::f32);
  const test::NormParameters norm(6, DType::f32);
  const test::NormReference expected(x, 2, norm.gamma, norm.beta, dy, 1e-5);
  const Tensor gamma_slice = Tensor::empty({6}), beta_slice = Tensor::empty({6});
  leaf_of(norm.gamma).bind(gamma_slice), leaf_of(norm.beta).bind(beta_slice);
  for (const double times : {1.0, 2.0, 3.0}) {
    backward(group_norm(x, 2, norm.gamma, norm.beta), dy);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(gamma_slice.to_vector()[i], times * expected.dgamma[i], 1e-4) << i;
      EXPECT_NEAR(beta_slice.to_vector()[i], times * expected.dbeta[i], 1e-4) << i;
    }
  }
}

TEST(GroupNorm, EmptySizes) {
  for (const Shape& shape : {Shape{0, 3, 3, 4}, Shape{2, 0, 3, 4}}) {
    const Tensor x = require_grad(Tensor::zeros(shape));
    const test::NormParameters norm(4, DType::f32);
    const Tensor y = group_norm(x, 2, norm.gamma, norm.beta);
    backward(y, y.detach());
    EXPECT_EQ(grad_of(x).shape(), shape);
    EXPECT_EQ(grad_of(norm.gamma).to_vector(), std::vector<double>(4, 0.0));
    EXPECT_EQ(grad_of(norm.beta).to_vector(), std::vector<double>(4, 0.0));
  }
  const Tensor none = require_grad(Tensor::zeros({2, 3, 3, 0}));
  const Tensor y = group_norm(none, 2);
  backward(y, y.detach());
  EXPECT_EQ(grad_of(none).shape(), none.shape());
}

TEST(GroupNorm, ConstantsInfinityAndNaN) {
  EXPECT_EQ(group_norm(Tensor::from(std::vector<float>(8, 7), {2, 2, 2}), 1).to_vector(),
            std::vector<double>(8, 0.0));
  // What is not finite spoils its own group of its own image.
  const Tensor x = cast_to(wave({2, 4, 4}), DType::f32);
  for (const float bad : {INFINITY, NAN}) {
    x.data<float>()[5] = bad;
    const std::vector<double> y = group_norm(x, 2).to_vector();
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i < 16 && i % 4 < 2) << i;
  }
}

TEST(GroupNorm, MistakesAreNamed) {
  const Tensor x = Tensor::zeros({2, 3, 3, 4}), wrong = Tensor::zeros({3});
  EXPECT_REFUSED(group_norm(x, 3), "groups", "3", "[2, 3, 3, 4]");
  EXPECT_REFUSED(group_norm(x, 0), "groups", "0", "[2, 3, 3, 4]");
  EXPECT_REFUSED(group_norm(Tensor::zeros({4}), 1), "x", "2", "[4]");
  EXPECT_REFUSED(group_norm(Tensor::zeros({2, 4}, {DType::i64, kCpu}), 1), "i64");
  EXPECT_REFUSED(group_norm(Tensor(), 1), "undefined");
  EXPECT_REFUSED(group_norm(Tensor::zeros({1, 1, 4}), 4), "x", "2", "[1, 1, 4]", "4", "1");
  EXPECT_NO_THROW(group_norm(Tensor::zeros({2, 1, 4}), 4));  // as PyTorch
  EXPECT_REFUSED(group_norm(x, 2, wrong), "gamma", "f32 [4]", "f32 [3]");
  EXPECT_REFUSED(group_norm(x, 2, {}, Tensor::zeros({4}, {DType::f64, kCpu})), "beta", "f32 [4]", "f64 [4]",
                 "cast(beta, DType::f32)");
  EXPECT_REFUSED(instance_norm(Tensor::zeros({2, 4})), "x", "3", "[2, 4]");
  EXPECT_REFUSED(instance_norm(Tensor::zeros({2, 1, 1, 4})), "x", "2", "[2, 1, 1, 4]");
  EXPECT_REFUSED(instance_norm(Tensor::zeros({2, 3, 1, 0})), "x", "2", "[2, 3, 1, 0]");
  EXPECT_REFUSED(instance_norm(x, wrong), "gamma", "f32 [4]", "f32 [3]");
}

TEST(GroupNormModule, StartsAsTheIdentityOfWhatIsNormalised) {
  const Tensor x = cast_to(wave({2, 3, 3, 4}), DType::f32);
  nn::GroupNorm norm(2, 4);
  EXPECT_EQ(norm.parameter_count(), 8);
  EXPECT_EQ(norm(x).to_vector(), group_norm(x, 2).to_vector());
  EXPECT_EQ(nn::GroupNorm(2, 4, 1e-5, false).parameter_count(), 0);
  nn::InstanceNorm2d instance(4), affine(4, 1e-3, true);
  EXPECT_EQ(instance.parameter_count(), 0);
  EXPECT_EQ(affine.parameter_count(), 8);
  EXPECT_EQ(instance(x).to_vector(), instance_norm(x).to_vector());
  EXPECT_EQ(affine(x).to_vector(), instance_norm(x, {}, {}, 1e-3).to_vector());
  EXPECT_THROW(nn::GroupNorm(3, 4), ArgumentError);
  EXPECT_THROW(nn::GroupNorm(0, 4), ArgumentError);
  EXPECT_THROW(nn::InstanceNorm2d(0), ArgumentError);
  EXPECT_THROW(norm(Tensor::zeros({2, 3, 3, 6})), ArgumentError);
  EXPECT_THROW(instance(Tensor::zeros({2, 3, 4})), ArgumentError);
}

// As every norm: parameters stay f32 in a model of a half type.
TEST(GroupNormModule, ParametersStayF32) {
  nn::GroupNorm norm(2, 4);
  norm.to(DType::bf16);
  const Tensor x = cast_to(wave({2, 3, 3, 4}), DType::bf16);
  for (const Parameter& p : norm.parameters()) EXPECT_EQ(p.tensor.dtype(), DType::f32);
  EXPECT_EQ(norm(x).dtype(), DType::bf16);
}

}  // namespace athanor::group_norm_test
