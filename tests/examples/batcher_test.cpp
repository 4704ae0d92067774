#include "examples/serve/batcher.h"

#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/base/error.h"

// Images that arrive together share a batch.

namespace athanor::serve::batcher_test {

using namespace std::chrono_literals;

constexpr auto kForever = 1h;  // a test that waited for it would hang

void put(Batcher& batcher, std::size_t index, std::uint64_t generation = 1) {
  batcher.put({.index = index, .generation = generation});
}

std::vector<std::size_t> indices(const std::vector<Picture>& batch) {
  std::vector<std::size_t> found;
  for (const Picture& picture : batch) found.push_back(picture.index);
  return found;
}

using Indices = std::vector<std::size_t>;

TEST(Batcher, StartsAtOnceIfNothingElseIsComing) {
  Batcher batcher(8, kForever);
  batcher.expect(2);
  for (std::size_t i = 0; i < 2; ++i) put(batcher, i);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1}));
}

TEST(Batcher, HasFewSizes) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(batch_sizes(1), Sizes{1});
  EXPECT_EQ(batch_sizes(8), (Sizes{1, 2, 4, 8}));
  EXPECT_EQ(batch_sizes(24), (Sizes{1, 2, 4, 8, 16, 24}));
  Batcher batcher(8, kForever);
  batcher.expect(7);
  for (std::size_t i = 0; i < 7; ++i) put(batcher, i);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(indices(batcher.take()), (Indices{4, 5}));
  EXPECT_EQ(indices(batcher.take()), Indices{6});
}

TEST(Batcher, FillsNoBatchBeyondItsSizeAndKeepsTheOrder) {
  Batcher batcher(4, kForever);
  batcher.expect(11);
  for (std::size_t i = 0; i < 10; ++i) put(batcher, i);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(indices(batcher.take()), (Indices{4, 5, 6, 7}));
  put(batcher, 10);
  EXPECT_EQ(indices(batcher.take()), (Indices{8, 9}));
  EXPECT_EQ(indices(batcher.take()), Indices{10});
}

TEST(Batcher, WaitsForImagesBeingDecoded) {
  Batcher batcher(8, kForever);
  batcher.expect(2);
  put(batcher, 0);
  auto batch = std::async(std::launch::async, [&] { return indices(batcher.take()); });
  EXPECT_EQ(batch.wait_for(30ms), std::future_status::timeout);
  put(batcher, 1);
  EXPECT_EQ(batch.get(), (Indices{0, 1}));
}

TEST(Batcher, DoesNotWaitForABrokenImage) {
  Batcher batcher(8, kForever);
  batcher.expect(2);
  put(batcher, 0);
  auto batch = std::async(std::launch::async, [&] { return indices(batcher.take()); });
  EXPECT_EQ(batch.wait_for(30ms), std::future_status::timeout);
  batcher.drop();
  EXPECT_EQ(batch.get(), Indices{0});
}

TEST(Batcher, WaitsNoLongerThanTheDelayOfTheOldest) {
  Batcher batcher(8, 50ms);
  batcher.expect(3);
  put(batcher, 0);
  const auto begin = Clock::now();
  std::this_thread::sleep_for(20ms);
  put(batcher, 1);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1}));
  EXPECT_GE(Clock::now() - begin, 50ms);
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST(Batcher, SharesNoBatchAmongModels) {
  Batcher batcher(8, kForever);
  batcher.expect(6);
  put(batcher, 0, 1);
  put(batcher, 1, 1);
  put(batcher, 2, 2);
  put(batcher, 3, 1);  // its decoder was slow
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1}));
  EXPECT_EQ(indices(batcher.take()), Indices{2});
  put(batcher, 4, 2);
  EXPECT_EQ(indices(batcher.take()), Indices{3});
  batcher.drop();
  EXPECT_EQ(indices(batcher.take()), Indices{4});
}

TEST(Batcher, EndsWhenAllExpectedImagesArrived) {
  Batcher batcher(8, kForever);
  batcher.expect(2);
  put(batcher, 0);
  batcher.close();
  EXPECT_EQ(indices(batcher.take()), Indices{0});
  auto last = std::async(std::launch::async, [&] { return indices(batcher.take()); });
  EXPECT_EQ(last.wait_for(30ms), std::future_status::timeout);
  put(batcher, 1);
  EXPECT_EQ(last.get(), Indices{1});
  EXPECT_TRUE(batcher.take().empty());
}

TEST(Batcher, RejectsUnannouncedImages) {
  Batcher batcher(8, kForever);
  EXPECT_THROW(put(batcher, 0), ArgumentError);
  EXPECT_THROW(batcher.drop(), ArgumentError);
  EXPECT_THROW(Batcher(0, kForever), ArgumentError);
}

TEST(Batcher, LosesAndDuplicatesNothingFromManyThreads) {
  constexpr std::size_t kThreads = 6, kEach = 400;
  Batcher batcher(16, 100us);
  std::vector<std::thread> decoders;
  for (std::size_t t = 0; t < kThreads; ++t) {
    decoders.emplace_back([&batcher, t] {
      for (std::size_t i = 0; i < kEach; ++i) {
        batcher.expect(2);
        put(batcher, t * kEach + i, i / 100);
        batcher.drop();
        if (i % 64 == 0) std::this_thread::sleep_for(100us);
      }
    });
  }
  std::set<std::size_t> seen;
  std::size_t taken = 0;
  std::thread computer([&] {
    for (std::vector<Picture> batch = batcher.take(); !batch.empty(); batch = batcher.take()) {
      EXPECT_LE(batch.size(), 16u);
      for (const Picture& picture : batch) {
        EXPECT_EQ(picture.generation, batch.front().generation);
        seen.insert(picture.index);
        ++taken;
      }
    }
  });
  for (std::thread& decoder : decoders) decoder.join();
  batcher.close();
  computer.join();
  EXPECT_EQ(taken, kThreads * kEach);
  EXPECT_EQ(seen.size(), taken);
}

}  // namespace athanor::serve::batcher_test
