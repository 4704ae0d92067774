#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "shards.h"

namespace {

const std::int64_t kCounts[] = {0, 1, 31, 32, 33, 64, 100, 1000, 4096, 100'003};

TEST(Shards, TileTheArena) {
  for (const std::int64_t count : kCounts) {
    for (const int world : {1, 2, 3, 5, 8}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Shard shard = shard_of(count, world, rank);
        ASSERT_EQ(shard.begin, next) << count << " elements, rank " << rank << " of " << world
                                     << ": a shard must begin where the one before has ended";
        ASSERT_LE(shard.begin, shard.end) << "a shard ends before it begins";
        next = shard.end;
      }
      ASSERT_EQ(next, count) << count << " elements on " << world << " ranks: "
                             << (next < count ? "the last elements belong to no rank, and are never updated"
                                              : "the last shard reaches beyond the arena");
    }
  }
}

TEST(Shards, BeginOnLinesOf128Bytes) {
  for (const std::int64_t count : kCounts)
    for (const int world : {2, 3, 5, 8})
      for (int rank = 0; rank < world; ++rank) {
        const Shard shard = shard_of(count, world, rank);
        ASSERT_TRUE(shard.begin % 32 == 0 || shard.begin == count)
            << "rank " << rank << " of " << world << " begins at element " << shard.begin << " of " << count
            << ", which is not a multiple of 32";
      }
}

TEST(Shards, AreBalanced) {
  for (const std::int64_t count : kCounts) {
    for (const int world : {2, 3, 5, 8}) {
      std::int64_t least = count, most = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Shard shard = shard_of(count, world, rank);
        least = std::min(least, shard.end - shard.begin), most = std::max(most, shard.end - shard.begin);
      }
      // A line of 32 elements, and what the end of the arena cuts off the last one.
      ASSERT_LE(most - least, 63) << count << " elements on " << world << " ranks: shards of " << least
                                  << " to " << most << ": the step takes as long as the largest";
    }
  }
}

std::vector<double> numbers(std::int64_t count, int seed) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<double>((i * 37 + seed * 11) % 17) - 8);
  return result;
}

// The largest difference between three steps by shards and three steps on all.
double difference(double max_norm) {
  constexpr std::int64_t kCount = 1000;
  constexpr int kWorld = 3;
  const Settings settings{0.125, max_norm};
  std::vector<double> ddp = numbers(kCount, 1), ddp_momentum(kCount), zero = ddp, zero_momentum(kCount);
  for (int i = 0; i < 3; ++i) {
    const std::vector<double> gradient = numbers(kCount, 2 + i);
    double squares = 0;
    for (const double value : gradient) squares += value * value;
    const double norm = std::sqrt(squares), factor = norm > max_norm ? max_norm / norm : 1;
    for (std::size_t k = 0; k < gradient.size(); ++k) {
      ddp_momentum[k] = 0.9 * ddp_momentum[k] + factor * gradient[k];
      ddp[k] -= settings.rate * ddp_momentum[k];
    }
    for (int rank = 0; rank < kWorld; ++rank) {
      const Shard shard = shard_of(kCount, kWorld, rank);
      const auto part = [&](auto& all) {
        return std::span(all).subspan(static_cast<std::size_t>(shard.begin),
                                      static_cast<std::size_t>(shard.end - shard.begin));
      };
      double own = 0;
      for (const double value : part(gradient)) own += value * value;
      step(part(gradient), part(zero), part(zero_momentum), settings,
           [&](double value) { return value + squares - own; });
    }
  }
  double largest = 0;
  for (std::size_t k = 0; k < ddp.size(); ++k) largest = std::max(largest, std::fabs(ddp[k] - zero[k]));
  return largest;
}

TEST(Step, EqualsDdpWithoutClipping) {
  EXPECT_EQ(difference(1e9), 0)
      << "without clipping a shard's update must be the same as on all, to the last bit";
}

TEST(Step, ClipsByTheNormOfAll) {
  EXPECT_EQ(difference(1), 0)
      << "each shard was clipped by another norm than that of the whole gradient: sum the squares over "
         "ranks, and take the root of the sum";
  // Above the norm of each shard, and below that of all.
  EXPECT_EQ(difference(120), 0) << "no shard alone is above max_norm, but all together are: the sum decides";
}

}  // namespace
