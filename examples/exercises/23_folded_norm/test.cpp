#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "fold.h"

namespace {

const Rows kBatch{{1, 10}, {3, 10}, {5, 40}, {7, 20}};  // means 4 and 20, variances 5 and 150 (over n)

BatchNorm fresh() {
  return {.gamma = {2, 1}, .beta = {0.5, -1}, .running_mean = {0, 0}, .running_variance = {1, 1}};
}

TEST(Norm, TrainsOnTheBatch) {
  BatchNorm norm = fresh();
  const Rows y = norm.train(kBatch);
  ASSERT_EQ(y.size(), 4u);
  EXPECT_NEAR(y[0][0], 0.5 + 2 * (1 - 4) / std::sqrt(5 + 1e-5), 1e-9)
      << "gamma (x - mean) / sqrt(variance + eps) + beta, of the batch";
  EXPECT_NEAR(y[2][1], -1 + (40 - 20) / std::sqrt(150 + 1e-5), 1e-9)
      << "gamma (x - mean) / sqrt(variance + eps) + beta, of the batch";
}

TEST(Norm, KeepsRunningStatistics) {
  BatchNorm norm = fresh();
  norm.train(kBatch);
  EXPECT_NE(norm.running_mean[0], 4) << "the running mean was replaced, not moved by a tenth of the distance";
  EXPECT_NEAR(norm.running_mean[0], 3.6 * 0 + 0.4, 1e-12) << "a tenth of the way from 0 to 4";
  EXPECT_NE(norm.running_variance[0], 1 + 0.1 * (5 - 1))
      << "the running variance is that of the batch divided by n - 1, not by n";
  EXPECT_NEAR(norm.running_variance[0], 1 + 0.1 * (20.0 / 3 - 1), 1e-12)
      << "a tenth of the way from 1 to 20/3";
  BatchNorm one = fresh();
  one.train({{5, 5}});
  EXPECT_EQ(one.running_variance[0], 1) << "one row has no variance over n - 1: 0/0";
  EXPECT_NEAR(one.running_mean[0], 0.5, 1e-12) << "but it has a mean";
}

TEST(Norm, EvaluatesByRunningStatistics) {
  BatchNorm norm = fresh();
  norm.running_mean = {1, 2}, norm.running_variance = {4, 9};
  const Rows alone = norm.eval({{3, 5}}), together = norm.eval({{100, 100}, {3, 5}});
  EXPECT_NEAR(alone[0][0], 0.5 + 2 * (3 - 1) / std::sqrt(4 + 1e-5), 1e-9);
  EXPECT_EQ(alone[0], together[1])
      << "the result of an image depends on its neighbours: the batch's statistics were used";
  EXPECT_EQ(norm.running_mean[0], 1) << "evaluation must not move the running statistics";
}

Linear layer() {
  return {.weights = {{1, -2, 0.5}, {3, 0.25, -1}}, .bias = {0.75, -0.5}};
}

TEST(Fold, GivesTheSameOutputs) {
  BatchNorm norm = fresh();
  norm.running_mean = {1, 2}, norm.running_variance = {4, 9};
  norm.gamma = {2, -0.5};
  const Linear linear = layer(), folded = fold(linear, norm);
  const Rows zero{{0, 0, 0}}, x{{1, 2, 3}, {-1, 0.5, 4}};
  const double bias_only = linear(zero)[0][0], expected = norm.eval(linear(zero))[0][0];
  const double scale = 2 / std::sqrt(4 + 1e-5);
  EXPECT_GT(std::fabs(folded(zero)[0][0] - (bias_only - scale * 1 + 0.5)), 1e-9)
      << "the layer's own bias was not scaled: the norm comes after it";
  EXPECT_NEAR(folded(zero)[0][0], expected, 1e-9)
      << "of zeros, only the biases are left: scale (bias - mean) + beta";
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_NEAR(folded(x)[i][k], norm.eval(linear(x))[i][k], 1e-9)
          << "channel " << k << " of row " << i
          << ": each row of weights is scaled by gamma / sqrt(running variance + eps)";
}

TEST(Fold, KeepsDeadChannelsFinite) {
  BatchNorm norm = fresh();
  norm.running_mean = {0.75, 0}, norm.running_variance = {0, 1e-4};
  const Rows x{{0, 0, 0}, {1e-3, 0, 0}};
  const Linear linear = layer(), folded = fold(linear, norm);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(std::isfinite(folded(x)[i][0]))
        << "a channel with variance 0 was divided by 0: eps is missing";
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_NEAR(folded(x)[i][k], norm.eval(linear(x))[i][k], 1e-6)
          << "where the variance is small, eps shows: inside the root";
  }
}

}  // namespace
