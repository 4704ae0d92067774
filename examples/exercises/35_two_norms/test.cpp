#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "norm.h"

namespace {

const Values kBatch{1, 3, 8};       // mean 4, squares of the deviations 9 + 1 + 16
const Values kWeights{0.5, -1, 2};  // of the loss: L = sum of weights times y

double loss(Norm norm, const Values& x) {  // on a copy: nothing moves
  const Values y = norm.forward(x);
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += kWeights[i] * y[i];
  return sum;
}

Norm a_norm() {
  Norm norm;
  norm.gamma = 1.5, norm.beta = 0.25, norm.running_mean = 2, norm.running_var = 4;
  return norm;
}

double by_difference(const Norm& norm, std::size_t i) {
  Values up = kBatch, down = kBatch;
  up[i] += 1e-5, down[i] -= 1e-5;
  return (loss(norm, up) - loss(norm, down)) / 2e-5;
}

TEST(Norm, TrainsOnTheBatch) {
  Norm norm = a_norm();
  const Values y = norm.forward(kBatch);
  ASSERT_EQ(y.size(), 3u);
  const double deviation = std::sqrt(26.0 / 3 + 1e-5);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(y[i], (kBatch[i] - 4) / deviation * 1.5 + 0.25, 1e-9)
        << "value " << i << ": in training the mean is 4 and the variance 26 / 3, which divides by n";
}

TEST(Norm, MovesItsStatistics) {
  Norm norm = a_norm();
  norm.forward(kBatch);
  EXPECT_GT(std::fabs(norm.running_mean - (0.1 * 2 + 0.9 * 4)), 1e-9)
      << "momentum is the weight of the new batch: 0.1 of the way from 2 to 4, and not 0.9";
  EXPECT_NEAR(norm.running_mean, 2.2, 1e-9) << "a tenth of the way from 2 to 4";
  EXPECT_GT(std::fabs(norm.running_var - (4 + 0.1 * (26.0 / 3 - 4))), 1e-9)
      << "the running variance follows the unbiased variance, 26 / 2, and not 26 / 3: it divides by n - 1";
  EXPECT_NEAR(norm.running_var, 4 + 0.1 * (13 - 4), 1e-9) << "a tenth of the way from 4 to 13";
  norm.forward({7});
  EXPECT_TRUE(std::isfinite(norm.running_var)) << "one value has no unbiased variance: 0 / 0";
}

TEST(Norm, EvaluatesWithThem) {
  Norm norm = a_norm();
  norm.training = false;
  const Values y = norm.forward(kBatch);
  const double deviation = std::sqrt(4 + 1e-5);
  EXPECT_NEAR(y[0], (1 - 2) / deviation * 1.5 + 0.25, 1e-9)
      << "in evaluation the running statistics normalise: mean 2, variance 4";
  EXPECT_NEAR(norm.forward({1})[0], y[0], 1e-12)
      << "a value alone and in a batch must give the same: nothing may depend on the others";
  EXPECT_EQ(norm.running_mean, 2) << "evaluation must not move the running statistics";
  EXPECT_EQ(norm.running_var, 4) << "evaluation must not move the running statistics";
}

TEST(Norm, GradientInTraining) {
  Norm norm = a_norm();
  norm.forward(kBatch);
  const Norm before = a_norm();
  const Values dx = norm.backward(kWeights);
  double sum = 0, along = 0;
  for (std::size_t i = 0; i < 3; ++i) sum += dx[i], along += dx[i] * (kBatch[i] - 4);
  EXPECT_NEAR(sum, 0, 1e-9)
      << "shifting all values changes nothing, so the gradients add up to 0: the mean of dy is missing";
  EXPECT_NEAR(along, 0, 1e-4) << "scaling all deviations changes (nearly) nothing: the term of the variance, "
                                 "d * mean of (dy d), is missing";
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(dx[i], by_difference(before, i), 1e-6) << "dL/dx of value " << i;
  EXPECT_NEAR(norm.dbeta, 1.5, 1e-9) << "dL/db is the sum of dy";
  const double deviation = std::sqrt(26.0 / 3 + 1e-5);
  EXPECT_NEAR(norm.dgamma, (0.5 * -3 + -1 * -1 + 2 * 4) / deviation, 1e-9) << "dL/dg is the sum of dy d";
  norm.forward(kBatch);
  norm.backward(kWeights);
  EXPECT_NEAR(norm.dbeta, 3, 1e-9) << "gradients of two batches are added";
}

TEST(Norm, GradientInEvaluation) {
  Norm norm = a_norm();
  norm.training = false;
  norm.forward(kBatch);
  const Values dx = norm.backward(kWeights);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(dx[i], kWeights[i] * 1.5 / std::sqrt(4 + 1e-5), 1e-9)
        << "value " << i
        << ": in evaluation the statistics are constants, so dx = dy g / sqrt(var + eps) alone";
    EXPECT_NEAR(dx[i], by_difference(norm, i), 1e-6) << "dL/dx of value " << i;
  }
}

}  // namespace
