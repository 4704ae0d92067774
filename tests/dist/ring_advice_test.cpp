#include "dist/collectives/ring_advice.h"

#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace athanor::dist::ring_advice_test {

constexpr int kNone = GpuLinks::kNoPeer;

/// One host, whose rank r has GPU r.
GpuLinks links_of(std::vector<std::vector<int>> link) {
  GpuLinks links;
  links.host.resize(link.size());
  links.device.resize(link.size());
  std::iota(links.device.begin(), links.device.end(), 0);
  links.link = std::move(link);
  return links;
}

/// GPUs 0 and 1, and 2 and 3, have a fast link; others only the host's memory.
GpuLinks pairs() {
  return links_of(
      {{-1, 0, kNone, kNone}, {0, -1, kNone, kNone}, {kNone, kNone, -1, 0}, {kNone, kNone, 0, -1}});
}
/// Fast links along 0 - 2 - 1 - 3 - 0; `slow` between others.
GpuLinks crossed(int slow) {
  return links_of({{-1, slow, 0, 0}, {slow, -1, 0, 0}, {0, 0, -1, slow}, {0, 0, slow, -1}});
}

TEST(RingAdvice, NamesAFasterOrderOfTheGpus) {
  const std::string none = advise_on_ring(crossed(kNone)), slow = advise_on_ring(crossed(1));
  for (const std::string& advice : {none, slow}) {
    EXPECT_TRUE(test::names(
        advice, {"--algorithm ring", "0", "1", "--algorithm native", "0,2,1,3", "CUDA_VISIBLE_DEVICES"}));
  }
  EXPECT_TRUE(test::holds(none, "peer access")) << none;
  EXPECT_FALSE(test::holds(slow, "peer access")) << slow;
}

TEST(RingAdvice, NamesGpusAsTheProcessNumbersThem) {
  GpuLinks links = crossed(kNone);
  links.device = {4, 5, 6, 7};
  EXPECT_TRUE(test::names(advise_on_ring(links), {"4,6,5,7"}));
}

TEST(RingAdvice, SaysNothingWhereNoOrderIsBetter) {
  EXPECT_EQ(advise_on_ring(pairs()), "");  // every ring crosses
  EXPECT_EQ(advise_on_ring(crossed(0)), "");
  EXPECT_EQ(advise_on_ring(links_of({{-1, kNone}, {kNone, -1}})), "");  // two ranks have one ring
  EXPECT_EQ(advise_on_ring(links_of({{-1}})), "");
  EXPECT_EQ(advise_on_ring({}), "");
  // The links of one direction count, too.
  GpuLinks one_way = crossed(0);
  one_way.link[3][0] = 5;
  EXPECT_NE(advise_on_ring(one_way), "");
}

TEST(RingAdvice, SaysNothingOfLinksItCannotSee) {
  GpuLinks hidden = crossed(kNone);
  hidden.device[2] = -1;
  EXPECT_EQ(advise_on_ring(hidden), "");
}

TEST(RingAdvice, BetweenHostsNativeUsesMoreLinks) {
  GpuLinks two = crossed(0);
  two.host = {0, 0, 1, 1};
  two.device = {0, 1, -1, -1};
  EXPECT_EQ(
      advise_on_ring(two),
      "--algorithm ring: 2 hosts exchange all bytes over one GPU's link each; --algorithm native uses all of "
      "their links");
}

}  // namespace athanor::dist::ring_advice_test
