#include "examples/serve/batcher.h"

#include <algorithm>
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

constexpr Picture::Key kModel{1, false};

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
  batcher.expect(kModel, 2);
  for (std::size_t i = 0; i < 2; ++i) put(batcher, i);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1}));
}

TEST(Batcher, HasFewSizes) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(batch_sizes(1), Sizes{1});
  EXPECT_EQ(batch_sizes(8), (Sizes{1, 2, 4, 8}));
  EXPECT_EQ(batch_sizes(24), (Sizes{1, 2, 4, 8, 16, 24}));
  Batcher batcher(8, kForever);
  batcher.expect(kModel, 7);
  for (std::size_t i = 0; i < 7; ++i) put(batcher, i);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(indices(batcher.take()), (Indices{4, 5}));
  EXPECT_EQ(indices(batcher.take()), Indices{6});
}

TEST(Batcher, FillsNoBatchBeyondItsSizeAndKeepsTheOrder) {
  Batcher batcher(4, kForever);
  batcher.expect(kModel, 11);
  for (std::size_t i = 0; i < 10; ++i) put(batcher, i);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(indices(batcher.take()), (Indices{4, 5, 6, 7}));
  put(batcher, 10);
  EXPECT_EQ(indices(batcher.take()), (Indices{8, 9}));
  EXPECT_EQ(indices(batcher.take()), Indices{10});
}

TEST(Batcher, WaitsForImagesBeingDecoded) {
  Batcher batcher(8, kForever);
  batcher.expect(kModel, 2);
  put(batcher, 0);
  auto batch = std::async(std::launch::async, [&] { return indices(batcher.take()); });
  EXPECT_EQ(batch.wait_for(30ms), std::future_status::timeout);
  put(batcher, 1);
  EXPECT_EQ(batch.get(), (Indices{0, 1}));
}

TEST(Batcher, DoesNotWaitForABrokenImage) {
  Batcher batcher(8, kForever);
  batcher.expect(kModel, 2);
  put(batcher, 0);
  auto batch = std::async(std::launch::async, [&] { return indices(batcher.take()); });
  EXPECT_EQ(batch.wait_for(30ms), std::future_status::timeout);
  batcher.drop(kModel);
  EXPECT_EQ(batch.get(), Indices{0});
}

TEST(Batcher, WaitsNoLongerThanTheDelayOfTheOldest) {
  Batcher batcher(8, 50ms);
  batcher.expect(kModel, 3);
  const auto begin = Clock::now();
  put(batcher, 0);
  std::this_thread::sleep_for(20ms);
  put(batcher, 1);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 1}));
  EXPECT_GE(Clock::now() - begin, 50ms);
}

TEST(Batcher, SharesNoBatchAmongModelsOrTypes) {
  Batcher batcher(8, kForever);
  batcher.expect(kModel, 2);
  batcher.expect({2, false}, 2);
  batcher.expect({2, true}, 1);
  put(batcher, 0);
  put(batcher, 1, 2);
  batcher.put({.index = 3, .generation = 2, .is_float = true});
  EXPECT_EQ(indices(batcher.take()), Indices{3});  // the others wait for images of their own
  put(batcher, 2);
  EXPECT_EQ(indices(batcher.take()), (Indices{0, 2}));
  batcher.drop({2, false});
  EXPECT_EQ(indices(batcher.take()), Indices{1});
}

/// Which of two models a batch is for, each time one is taken and takes its time; both always have images.
std::vector<std::uint64_t> turns(Clock::duration first, Clock::duration second, int count) {
  Clock::time_point now{};
  Batcher batcher(1, kForever, [&] { return now; });
  for (const std::uint64_t model : {1, 2}) {
    batcher.expect({model, false}, 100);
    for (std::size_t i = 0; i < 100; ++i) put(batcher, i, model);
  }
  std::vector<std::uint64_t> taken;
  for (int i = 0; i < count; ++i) {
    taken.push_back(batcher.take().at(0).generation);
    now += taken.back() == 1 ? first : second;
  }
  return taken;
}

TEST(Batcher, ModelsShareTheTimeNotTheNumberOfBatches) {
  const std::vector<std::uint64_t> taken = turns(40ms, 2ms, 20);
  const auto slow = std::count(taken.begin(), taken.end(), 1u);
  EXPECT_GE(slow, 1);
  EXPECT_LE(slow, 4);  // 20 turns, with as many as 20 of the other for each of its own
}

TEST(Batcher, AModelThatWasIdleSavesUpNoTime) {
  Clock::time_point now{};
  Batcher batcher(1, kForever, [&] { return now; });
  const auto add = [&](std::uint64_t model, std::size_t count) {
    batcher.expect({model, false}, count);
    for (std::size_t i = 0; i < count; ++i) put(batcher, i, model);
  };
  add(1, 10);
  for (int i = 0; i < 4; ++i) {
    (void)batcher.take();
    now += 10ms;
  }
  add(2, 10);
  std::size_t of_second = 0;
  for (int i = 0; i < 6; ++i) {
    of_second += batcher.take().at(0).generation == 2;
    now += 10ms;
  }
  EXPECT_GE(of_second, 2u);
  EXPECT_LE(of_second, 4u);
}

TEST(Batcher, EndsWhenAllExpectedImagesArrived) {
  Batcher batcher(8, kForever);
  batcher.expect(kModel, 2);
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
  EXPECT_THROW(batcher.drop(kModel), ArgumentError);
  batcher.expect(kModel, 1);
  EXPECT_THROW(put(batcher, 0, 2), ArgumentError);
  EXPECT_THROW(Batcher(0, kForever), ArgumentError);
}

TEST(Batcher, LosesAndDuplicatesNothingFromManyThreads) {
  constexpr std::size_t kThreads = 6, kEach = 400;
  Batcher batcher(16, 100us);
  std::vector<std::thread> decoders;
  for (std::size_t t = 0; t < kThreads; ++t) {
    decoders.emplace_back([&batcher, t] {
      for (std::size_t i = 0; i < kEach; ++i) {
        const std::uint64_t model = i / 100;
        batcher.expect({model, false}, 2);
        put(batcher, t * kEach + i, model);
        batcher.drop({model, false});
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
