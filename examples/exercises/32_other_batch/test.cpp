#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "batch.h"

namespace {

TEST(Batch, CountsSteps) {
  EXPECT_EQ(steps_per_epoch(1437, 32), 44)
      << "1,437 images are 44 batches of 32 and a smaller one, which is left out";
  EXPECT_EQ(steps_per_epoch(1437, 512), 2);
  EXPECT_EQ(steps_per_epoch(64, 32), 2) << "nothing is left over";
  EXPECT_EQ(steps_per_epoch(10, 32), 0) << "fewer images than a batch";
}

TEST(Batch, ScalesTheRate) {
  EXPECT_NEAR(scaled_rate(0.03, 32, 32, Rule::linear), 0.03, 1e-15) << "the batch it was chosen for";
  EXPECT_GT(scaled_rate(0.03, 32, 256, Rule::linear), 0.03)
      << "a larger batch makes fewer steps: the rate must rise, not fall";
  EXPECT_NEAR(scaled_rate(0.03, 32, 256, Rule::linear), 0.24, 1e-12)
      << "8 times the images, 8 times the rate";
  EXPECT_NEAR(scaled_rate(0.03, 32, 8, Rule::linear), 0.0075, 1e-12)
      << "a quarter of the images: a ratio of integers is 0 below 1";
  EXPECT_NEAR(scaled_rate(0.03, 32, 128, Rule::square_root), 0.06, 1e-12)
      << "4 times the images, twice the rate";
  EXPECT_NEAR(scaled_rate(0.03, 32, 8, Rule::square_root), 0.015, 1e-12);
}

TEST(Batch, CountsAllDevices) {
  EXPECT_EQ(global_batch(32, 1, 1), 32);
  EXPECT_EQ(global_batch(32, 4, 1), 128) << "each of 4 devices has 32 images";
  EXPECT_EQ(global_batch(32, 4, 2), 256) << "accumulation counts, too: the step is taken after two batches";
}

TEST(Batch, AccumulatesTheMean) {
  EXPECT_EQ(accumulate({6}), 6);
  EXPECT_NE(accumulate({1, 2, 6}), 9)
      << "this is the sum: with three batches each step would be three times as long";
  EXPECT_EQ(accumulate({1, 2, 6}), 3) << "the mean over all images of three equal batches";
}

TEST(Batch, EstimatesTheNoise) {
  EXPECT_EQ(noise_variance({3, 3, 3, 3}), 0)
      << "equal gradients have no noise, whatever the gradient: subtract the mean";
  EXPECT_NE(noise_variance({1, 2, 3, 6}), 3.5)
      << "divided by n: the mean of these very numbers is nearer to them than the true gradient is";
  EXPECT_NEAR(noise_variance({1, 2, 3, 6}), 14.0 / 3, 1e-12);
  // 20,000 batches of 4 and of 16 images whose gradients are uniform around 10.
  std::uint64_t state = 1;
  const auto batches = [&](int size) {
    std::vector<double> gradients;
    for (int i = 0; i < 20'000; ++i) {
      double sum = 0;
      for (int k = 0; k < size; ++k) {
        state = state * 6364136223846793005 + 1442695040888963407;
        sum += 9.5 + static_cast<double>(state >> 11) * 0x1p-53;
      }
      gradients.push_back(sum / size);
    }
    return gradients;
  };
  const double small = noise_variance(batches(4)), large = noise_variance(batches(16));
  EXPECT_NEAR(small / large, 4, 0.2) << "four times the images per batch, a quarter of the variance";
  EXPECT_NEAR(small, 1.0 / 12 / 4, 0.001);
}

}  // namespace
