#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "order.h"

namespace {

Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}
Samples first(std::int64_t count) {
  Samples samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(i);
  return samples;
}

TEST(Order, IsAPermutation) {
  for (const std::int64_t count : {0, 1, 2, 3, 1000})
    EXPECT_EQ(sorted(order(count, 7, 3)), first(count)) << "some sample is missing or comes twice";
}

TEST(Order, DiffersByEpochAndSeed) {
  EXPECT_NE(order(100, 7, 0), first(100)) << "this is no shuffling";
  EXPECT_NE(order(100, 7, 0), order(100, 7, 1)) << "every epoch has the same order: the epoch is not used";
  EXPECT_NE(order(100, 7, 0), order(100, 8, 0)) << "the seed is not used";
}

TEST(Order, DoesNotDependOnWorkersOrHistory) {
  const Samples once = order(100, 7, 2);
  EXPECT_EQ(order(100, 7, 2), once) << "asked a second time, the same epoch has another order";
  (void)order(50, 1, 1);
  EXPECT_EQ(order(100, 7, 2), once)
      << "what was asked in between changed the order: something is kept between calls";
  Samples elsewhere;
  std::thread([&] { elsewhere = order(100, 7, 2); }).join();
  EXPECT_EQ(elsewhere, once) << "another thread gets another order";
}

TEST(Order, IsFair) {
  constexpr int kTimes = 60'000;
  std::map<Samples, int> seen;
  std::array<int, 3> last_is{};
  for (std::uint64_t epoch = 0; epoch < kTimes; ++epoch) {
    const Samples samples = order(3, 5, epoch);
    ++seen[samples];
    ++last_is[static_cast<std::size_t>(samples[2])];
  }
  ASSERT_EQ(seen.size(), 6u)
      << "not every permutation of three occurs (an element never stays in its place?)";
  for (const auto& [samples, times] : seen)
    EXPECT_NEAR(times, kTimes / 6, 600)
        << "permutation " << samples[0] << samples[1] << samples[2]
        << " is too frequent or too rare: element i must be exchanged with one of 0 ... i";
}

TEST(Order, DividesABatchAmongRanks) {
  const Samples all = order(103, 7, 0);
  for (const int world : {1, 2, 3, 4}) {
    for (std::int64_t batch = 0; batch < 11; ++batch) {
      Samples together;
      std::size_t least = 1000, most = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Samples part = batch_of(all, batch, 10, rank, world);
        together.insert(together.end(), part.begin(), part.end());
        least = std::min(least, part.size()), most = std::max(most, part.size());
      }
      const std::int64_t begin = batch * 10, end = std::min<std::int64_t>(begin + 10, 103);
      ASSERT_EQ(together, Samples(all.begin() + begin, all.begin() + end))
          << "batch " << batch << " of " << world << " ranks, rank by rank, must be samples " << begin
          << " to " << end << " of the order, whatever the number of ranks";
      ASSERT_LE(most - least, 1u) << "the parts of a batch differ by more than a sample";
    }
  }
}

}  // namespace
