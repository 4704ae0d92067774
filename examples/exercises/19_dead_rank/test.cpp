#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "blame.h"

namespace {

using Records = std::vector<std::optional<Record>>;

Record waits(int collective, int rank) {
  return {collective, false, rank};
}
Record busy(int collective) {  // in it, but not waiting
  return {collective, false, -1};
}
Record done(int collective) {
  return {collective, true, -1};
}

TEST(Deadline, ExpiresWithoutProgress) {
  Deadline deadline(5);
  for (int i = 0; i < 20; ++i)
    ASSERT_FALSE(deadline.expired(100 + i * 0.25, false)) << "after " << i * 0.25 << " of 5 s";
  EXPECT_TRUE(deadline.expired(105, false)) << "5 s without progress";
  Deadline moving(5);
  for (int i = 0; i < 100; ++i)
    ASSERT_FALSE(moving.expired(i * 0.25, i % 10 == 0))
        << "there was progress every 2.5 s: a slow rank is not a dead one";
}

TEST(Deadline, DoesNotCountItsOwnPause) {
  Deadline deadline(5);
  EXPECT_FALSE(deadline.expired(0, false));
  EXPECT_FALSE(deadline.expired(0.5, false));
  EXPECT_FALSE(deadline.expired(60.5, false))
      << "the rank itself was stopped for a minute: it would blame the others for its own absence";
  for (int i = 1; i < 18; ++i)
    ASSERT_FALSE(deadline.expired(60.5 + i * 0.25, false)) << 0.5 + i * 0.25 << " s were spent waiting";
  EXPECT_TRUE(deadline.expired(65, false)) << "0.5 s before the pause and 4.5 s after it: what came before a "
                                              "pause still counts, or pauses postpone the end for ever";
}

TEST(Culprit, IsTheEndOfTheChain) {
  // Rank 2 sits in its data loader, before collective 8, and the others wait along the ring.
  const Records ring{waits(8, 3), waits(8, 0), done(7), waits(8, 2)};
  for (const int rank : {0, 1, 3})
    EXPECT_EQ(culprit(rank, ring), 2)
        << "rank " << rank << " must follow the chain: the rank it waits for is only waiting itself";
  const Records earlier{waits(9, 1), waits(7, 2), busy(7), waits(9, 0)};
  EXPECT_EQ(culprit(3, earlier), 2) << "rank 1 is held up in an earlier collective, by rank 2";
}

TEST(Culprit, IsTheRankWithoutARecord) {
  const Records gone{waits(8, 3), waits(8, 0), std::nullopt, waits(8, 2)};
  for (const int rank : {0, 1, 3}) EXPECT_EQ(culprit(rank, gone), 2) << "rank 2's process is gone";
}

TEST(Culprit, IsNobodyInACircle) {
  const Records circle{waits(8, 1), waits(8, 2), waits(8, 1), waits(8, 0)};
  EXPECT_EQ(culprit(3, circle), -1) << "ranks 1 and 2 wait for each other: no rank is to blame";
  const Records passed{waits(8, 1), done(8)};
  EXPECT_EQ(culprit(0, passed), -1)
      << "rank 1 has finished collective 8, so that it has done its part: the network lost a message";
  const Records later{waits(8, 1), busy(9)};
  EXPECT_EQ(culprit(0, later), -1) << "rank 1 is in a later collective: it has done its part in this one";
  const Records waits_later{waits(8, 1), waits(9, 2), busy(7)};
  EXPECT_EQ(culprit(0, waits_later), -1)
      << "rank 1 waits in a later collective; what it waits for there is not what holds up rank 0";
}

}  // namespace
