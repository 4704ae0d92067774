#include "kernels/cpu/parallel.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/context.h"

namespace athanor::cpu::parallel_test {

using Piece = std::pair<std::int64_t, std::int64_t>;

std::vector<Piece> pieces_of(Shares& shares, int thread) {
  std::vector<Piece> pieces;
  shares.each(thread, [&](std::int64_t begin, std::int64_t end) { pieces.emplace_back(begin, end); });
  return pieces;
}

TEST(Shares, ThreadsGetEachItemOnce) {
  for (const int threads : {1, 2, 3, 9, 256, 300}) {
    for (const std::int64_t n : {1, 2, 7, 64, 1000}) {
      for (const std::int64_t grain : {1, 5, 2000}) {
        for (const From from : {From::begin, From::end}) {
          Shares shares(n, threads, grain, from);
          std::vector<int> times(static_cast<std::size_t>(n), 0);
          for (int i = 0; i < threads; ++i) {
            for (const auto& [begin, end] : pieces_of(shares, (i + 5) % threads)) {
              ASSERT_LT(begin, end);
              for (std::int64_t item = begin; item < end; ++item) ++times.at(static_cast<std::size_t>(item));
            }
          }
          for (const int count : times) ASSERT_EQ(count, 1) << threads << " " << n << " " << grain;
        }
      }
    }
  }
}

TEST(Shares, AThreadBeginsWithItsOwnShare) {
  Shares forwards(30, 2, 6);
  EXPECT_TRUE(forwards.any_left(0));
  EXPECT_EQ(pieces_of(forwards, 1),
            (std::vector<Piece>{{15, 21}, {21, 27}, {27, 30}, {0, 6}, {6, 12}, {12, 15}}));
  EXPECT_FALSE(forwards.any_left(0));
  EXPECT_TRUE(pieces_of(forwards, 0).empty());
  Shares backwards(30, 2, 6, From::end);
  EXPECT_EQ(pieces_of(backwards, 0),
            (std::vector<Piece>{{9, 15}, {3, 9}, {0, 3}, {24, 30}, {18, 24}, {15, 18}}));
}

TEST(Shares, AThreadTakesWhatASlowOneLeaves) {
  Shares shares(160, 2, 1);
  std::atomic<bool> slow_began = false, others_are_done = false;
  std::int64_t slow_items = 0, items = 0;
  std::thread slow([&] {
    shares.each(0, [&](std::int64_t begin, std::int64_t end) {
      slow_items += end - begin;
      slow_began = true;
      while (!others_are_done) std::this_thread::yield();
    });
  });
  while (!slow_began) std::this_thread::yield();
  shares.each(1, [&](std::int64_t begin, std::int64_t end) { items += end - begin; });
  others_are_done = true;
  slow.join();
  EXPECT_EQ(items, 150);
  EXPECT_EQ(slow_items, 10);
}

TEST(Shares, ThreadsOfATeamGetEachItemOnce) {
  ThreadTeam team;
  for (int round = 0; round < 3000; ++round) {
    const int threads = 2 + round % 5;
    const std::int64_t n = 1 + round * 7 % 300;
    std::vector<int> times(static_cast<std::size_t>(n), 0);  // not atomic: ThreadSanitizer looks on
    Shares shares(n, threads, 1 + round % 3, round % 2 == 0 ? From::begin : From::end);
    team.run(threads, [&](int thread) {
      shares.each(thread, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) ++times.at(static_cast<std::size_t>(item));
      });
    });
    for (const int count : times) ASSERT_EQ(count, 1) << round;
  }
}

TEST(ParallelFor, OneThreadGetsAllAtOnce) {
  CpuContext context;
  const auto pieces = [&](std::int64_t n, std::int64_t grain) {
    std::vector<Piece> all;
    parallel_for(context, n, grain,
                 [&](std::int64_t begin, std::int64_t end) { all.emplace_back(begin, end); });
    return all;
  };
  context.set_threads(1);
  EXPECT_EQ(pieces(1000, 1), (std::vector<Piece>{{0, 1000}}));
  context.set_threads(4);
  EXPECT_EQ(pieces(1000, 1000), (std::vector<Piece>{{0, 1000}}));
  EXPECT_TRUE(pieces(0, 1).empty());
}

TEST(ForEachSlot, NoSlotIsUsedTwiceAtATime) {
  CpuContext context;
  context.set_threads(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> times(100), users(4);
    for_each_slot(context, 4, 100, [&](std::int64_t slot, const auto& each_piece) {
      EXPECT_EQ(++users.at(static_cast<std::size_t>(slot)), 1);
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) ++times.at(static_cast<std::size_t>(item));
      });
      --users.at(static_cast<std::size_t>(slot));
    });
    for (const auto& count : times) ASSERT_EQ(count, 1);
  }
}

}  // namespace athanor::cpu::parallel_test
