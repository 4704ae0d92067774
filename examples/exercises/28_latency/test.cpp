#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "cost.h"

namespace {

const Link kFast{2e-6, 100e9}, kSlow{20e-6, 10e9};

// Equal to nine digits, for numbers of any size.
void expect_near(double value, double expected, const std::string& why) {
  EXPECT_NEAR(value, expected, 1e-9 * expected + 1e-18) << why;
}

TEST(Cost, OfARing) {
  const double got = ring(4, 1e9, {0, 1e9});
  EXPECT_GT(std::fabs(got - 6), 1e-9) << "each step carries a piece of n / P bytes, not all n";
  EXPECT_GT(std::fabs(got - 0.75), 1e-9)
      << "this is one phase: an all-reduce is a reduce-scatter and an all-gather";
  expect_near(got, 1.5, "1 GB on 4 ranks without latency: 2 * 3 steps of 0.25 s");
  EXPECT_GT(ring(1024, 8, kSlow), 0.04)
      << "8 bytes on 1,024 ranks: 2,046 steps wait for a latency of 20 us each";
  expect_near(ring(1024, 1e6, kSlow), 2046 * (20e-6 + 1e6 / 1024 / 10e9), "1 MB on 1,024 ranks");
  EXPECT_EQ(ring(1, 1e9, kSlow), 0) << "one rank sends nothing";
}

TEST(Cost, OfATree) {
  expect_near(tree(8, 1e6, kSlow), 2 * 3 * (20e-6 + 1e6 / 10e9), "8 ranks are 3 doublings, up and down");
  EXPECT_GT(tree(5, 1e6, kSlow), 1.01 * tree(4, 1e6, kSlow))
      << "5 ranks need 3 steps each way, not 2: round the doublings up";
  expect_near(tree(5, 1e6, kSlow), tree(8, 1e6, kSlow), "5 ranks take as many steps as 8");
  expect_near(tree(1024, 8, kSlow), 20 * (20e-6 + 8 / 10e9), "1,024 ranks are exactly 10 doublings");
  EXPECT_EQ(tree(1, 1e9, kSlow), 0) << "one rank sends nothing";
}

TEST(Cost, OfRingsInRings) {
  const double inside = 2 * 7 * (2e-6 + 1e9 / 8 / 100e9),
               between = 2 * 15 * (20e-6 + 1e9 / 8 / 16 / (10e9 / 8));
  const double got = rings_in_rings(16, 8, 1e9, kFast, kSlow);
  EXPECT_GT(std::fabs(got - (inside + 2 * 15 * (20e-6 + 1e9 / 8 / 16 / 10e9))), 1e-6)
      << "the 8 ranks of a node share its link: each has an eighth of the bandwidth";
  EXPECT_GT(std::fabs(got - (inside + 2 * 15 * (20e-6 + 1e9 / 16 / (10e9 / 8)))), 1e-6)
      << "between nodes each rank has only its piece, an eighth of the bytes";
  expect_near(got, inside + between, "1 GB on 16 nodes of 8");
  expect_near(rings_in_rings(1, 8, 1e9, kFast, kSlow), ring(8, 1e9, kFast), "one node is a ring inside it");
  expect_near(rings_in_rings(16, 1, 1e9, kFast, kSlow), ring(16, 1e9, kSlow),
              "nodes of one rank are a ring between them");
}

TEST(Cost, ChoosesTheFastest) {
  EXPECT_EQ(fastest(128, 8, 8, kFast, kSlow), "tree")
      << "a few bytes on 1,024 ranks: only the number of steps counts";
  EXPECT_EQ(fastest(128, 8, 100e6, kFast, kSlow), "rings_in_rings")
      << "100 MB: 14 steps inside and 254 between, instead of 2,046";
  EXPECT_EQ(fastest(4, 1, 1e9, kFast, kSlow), "ring")
      << "four ranks and 1 GB: a ring sends the fewest bytes; where two are equal, the simpler one";
}

}  // namespace
