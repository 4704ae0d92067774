#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "loss.h"

namespace {

TEST(Loss, OfSmallLogits) {
  EXPECT_NEAR(cross_entropy({{0, 0, 0, 0}}, {2}, 0).value, std::log(4), 1e-12) << "four equal classes";
  EXPECT_NEAR(cross_entropy({{1, 2, 4}, {0, 0, 0}}, {1, 0}, 0).value,
              (std::log(std::exp(1) + std::exp(2) + std::exp(4)) - 2 + std::log(3)) / 2, 1e-12)
      << "the mean over two rows";
}

TEST(Loss, OfLargeLogits) {
  const double large = cross_entropy({{1000, 0}}, {0}, 0).value,
               wrong = cross_entropy({{1000, 0}}, {1}, 0).value;
  ASSERT_TRUE(std::isfinite(large)) << "exp(1000) is infinite: subtract the largest logit first";
  EXPECT_NEAR(large, 0, 1e-12);
  ASSERT_TRUE(std::isfinite(wrong))
      << "the probability of the target became 0, and its logarithm infinite: log(sum) - z needs no p";
  EXPECT_NEAR(wrong, 1000, 1e-9) << "a target 1,000 below the largest logit";
  EXPECT_NEAR(cross_entropy({{-1000, -1001}}, {0}, 0).value, std::log(1 + std::exp(-1)), 1e-12)
      << "all exps are 0 without the shift: subtract the largest logit, whatever its sign";
  const Loss loss = cross_entropy({{1000, 999, -1000}}, {1}, 0);
  for (const double value : loss.gradient[0])
    ASSERT_TRUE(std::isfinite(value)) << "the gradient overflows, too";
}

TEST(Loss, SmoothsLabels) {
  const double z[3] = {1, 2, 4}, log_sum = std::log(std::exp(1) + std::exp(2) + std::exp(4));
  double expected = 0;
  for (int j = 0; j < 3; ++j) expected += (0.1 + (j == 1 ? 0.7 : 0)) * (log_sum - z[j]);
  EXPECT_NEAR(cross_entropy({{1, 2, 4}}, {1}, 0.3).value, expected, 1e-12)
      << "with smoothing 0.3 and three classes every class has 0.1, and the target 0.7 more, the target "
         "itself included";
}

TEST(Loss, LeavesOutIgnoredRows) {
  const Rows logits{{1, 2}, {5, -5}, {0, 3}};
  const Loss all = cross_entropy({logits[0], logits[2]}, {0, 1}, 0.1),
             some = cross_entropy(logits, {0, -1, 1}, 0.1);
  EXPECT_NEAR(some.value, all.value, 1e-12)
      << "the mean is over the rows that count: an ignored row must not be in the number";
  EXPECT_EQ(some.gradient[1], (Row{0, 0})) << "an ignored row has no gradient";
  EXPECT_NEAR(some.gradient[2][0], all.gradient[1][0], 1e-12)
      << "gradients are divided by the number of rows that count";
  const Loss none = cross_entropy(logits, {-1, -1, -1}, 0);
  EXPECT_EQ(none.value, 0) << "no row counts: 0, not 0/0";
  EXPECT_EQ(none.gradient[0], (Row{0, 0})) << "no row counts: 0, not 0/0";
}

TEST(Loss, HasItsGradient) {
  for (const double smoothing : {0.0, 0.2}) {
    Rows logits{{0.5, -1, 2}, {1, 1, 0}};
    const std::vector<int> targets{2, 0};
    const Loss loss = cross_entropy(logits, targets, smoothing);
    for (std::size_t i = 0; i < 2; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < 3; ++j) {
        const double original = logits[i][j];
        logits[i][j] = original + 1e-5;
        const double above = cross_entropy(logits, targets, smoothing).value;
        logits[i][j] = original - 1e-5;
        const double below = cross_entropy(logits, targets, smoothing).value;
        logits[i][j] = original;
        EXPECT_NEAR(loss.gradient[i][j], (above - below) / 2e-5, 1e-8)
            << "logit " << j << " of row " << i << ", smoothing " << smoothing
            << ": the gradient of a mean over two rows has a factor of 1/2, and q is the smoothed target";
        sum += loss.gradient[i][j];
      }
      EXPECT_NEAR(sum, 0, 1e-12) << "p and q both sum to 1, so that a row's gradient sums to 0";
    }
  }
}

}  // namespace
