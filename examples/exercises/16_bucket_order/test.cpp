#include <vector>

#include <gtest/gtest.h>

#include "buckets.h"

namespace {

using Numbers = std::vector<int>;

const Numbers kBuckets{2, 2, 1, 1, 0, 0};  // of six parameters: the last layers are in bucket 0

struct Rank {
  explicit Rank(const Numbers& bucket_of = kBuckets, int buckets = 3)
      : list(bucket_of, buckets, [this](int bucket) { launched.push_back(bucket); }) {}
  Rank(const Rank&) = delete;
  void arrive(const Numbers& parameters) {
    for (const int parameter : parameters) list.arrived(parameter);
  }
  Numbers launched;
  Buckets list;
};

TEST(Buckets, LaunchesEachOnce) {
  Rank rank;
  rank.arrive({5, 4, 3, 2, 1, 0});
  rank.list.finish();
  EXPECT_EQ(rank.launched, (Numbers{0, 1, 2})) << "in the usual order of a backward pass";
}

TEST(Buckets, UsesOneOrderOnAllRanks) {
  for (const Numbers& order :
       {Numbers{5, 4, 3, 2, 1, 0}, {3, 2, 5, 4, 0, 1}, {0, 1, 2, 3, 4, 5}, {0, 2, 4, 1, 3, 5}}) {
    Rank rank;
    rank.arrive(order);
    rank.list.finish();
    EXPECT_EQ(rank.launched, (Numbers{0, 1, 2})) << "gradients arrived in another order, and so did the "
                                                    "launches: other ranks' first collective is bucket 0";
  }
}

TEST(Buckets, OverlapsWithTheBackwardPass) {
  Rank rank;
  rank.arrive({5, 4});
  EXPECT_EQ(rank.launched, (Numbers{0}))
      << "bucket 0 is complete: launched only at the end, nothing overlaps";
  rank.arrive({1, 0});
  EXPECT_EQ(rank.launched, (Numbers{0})) << "bucket 2 must wait for bucket 1";
  rank.arrive({2, 3});
  EXPECT_EQ(rank.launched, (Numbers{0, 1, 2}))
      << "bucket 2 was complete before: when bucket 1 goes, it may go, too, without another gradient";
  Rank with_empty({2, 0}, 3);
  with_empty.arrive({1, 0});
  EXPECT_EQ(with_empty.launched, (Numbers{0, 1, 2})) << "bucket 1 has no parameter, and nothing to wait for";
}

TEST(Buckets, CompletesWhatGotNoGradient) {
  Rank rank;
  rank.arrive({3, 2, 1, 4});  // nothing for parameters 0 and 5
  rank.list.finish();
  EXPECT_EQ(rank.launched, (Numbers{0, 1, 2}))
      << "a branch was not taken on this rank, so that buckets 0 and 2 never became complete: the other "
         "ranks wait for them";
}

TEST(Buckets, WorksAgainInTheNextStep) {
  Rank rank;
  for (int step = 1; step <= 3; ++step) {
    rank.launched.clear();
    rank.arrive(step == 2 ? Numbers{4, 3} : Numbers{3, 2, 5, 4, 0, 1});
    rank.list.finish();
    EXPECT_EQ(rank.launched, (Numbers{0, 1, 2}))
        << "step " << step << ": counts must begin again, also after a step with gaps";
  }
}

}  // namespace
