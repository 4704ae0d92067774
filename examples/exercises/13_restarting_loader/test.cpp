#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "loader.h"

namespace {

using namespace std::chrono_literals;

int value_of(std::int64_t epoch, std::int64_t batch) {
  return static_cast<int>(epoch * 1000 + batch);
}

// Whether it becomes true within 5 s.
bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST(Loader, DeliversInOrder) {
  for (const int threads : {1, 3, 8}) {
    Loader loader(
        [](std::int64_t epoch, std::int64_t batch) {
          std::this_thread::sleep_for(std::chrono::microseconds((batch * 7919) % 400));
          return value_of(epoch, batch);
        },
        7, threads, 4);
    for (int epoch = 0; epoch < 4; ++epoch)
      for (int batch = 0; batch < 7; ++batch)
        ASSERT_EQ(loader.next(), value_of(epoch, batch))
            << "batch " << batch << " of epoch " << epoch << ", with " << threads
            << " threads: batches were delivered as they were ready, not in order";
  }
}

TEST(Loader, StartsItsThreadsOnce) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  const std::thread::id caller = std::this_thread::get_id();
  Loader loader(
      [&](std::int64_t epoch, std::int64_t batch) {
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
        static thread_local int first_epoch = static_cast<int>(epoch);
        EXPECT_LE(first_epoch, 1) << "a thread was created in epoch " << first_epoch
                                  << ": threads must live as long as the loader";
        return value_of(epoch, batch);
      },
      40, 2, 4);
  for (int i = 0; i < 40 * 6; ++i) loader.next();
  const std::lock_guard lock(mutex);
  EXPECT_LE(ids.size(), 2u)
      << "more threads have read than the loader has: they are created again for each epoch";
  EXPECT_FALSE(ids.contains(caller))
      << "the caller of next() read a batch itself, while nothing else could happen";
}

TEST(Loader, ReadsAheadOverTheEdgeOfAnEpoch) {
  std::atomic<bool> next_epoch_read = false;
  Loader loader(
      [&](std::int64_t epoch, std::int64_t batch) {
        if (epoch == 1 && batch == 0) next_epoch_read = true;
        return value_of(epoch, batch);
      },
      5, 2, 3);
  for (int batch = 0; batch < 3; ++batch) loader.next();
  EXPECT_TRUE(soon([&] { return next_epoch_read.load(); }))
      << "with three slots and two batches left in this epoch, the first of the next must be read already: "
         "the queue is empty "
         "at the start of every epoch";
  EXPECT_EQ(loader.next(), 3);
}

TEST(Loader, ReadsNoFurtherThanItsSlots) {
  std::atomic<int> begun = 0;
  Loader loader(
      [&](std::int64_t epoch, std::int64_t batch) {
        ++begun;
        return value_of(epoch, batch);
      },
      1000, 4, 6);
  loader.next();
  EXPECT_TRUE(soon([&] { return begun >= 7; })) << "with 6 slots, 6 batches must be read ahead";
  std::this_thread::sleep_for(100ms);
  EXPECT_LE(begun, 7) << begun
                      << " batches were read, and 1 taken: with 6 slots that is too many, and memory grows";
}

TEST(Loader, EndsWhileThreadsAreReading) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> ended = 0, begun = 0;
  {
    Loader loader(
        [&](std::int64_t epoch, std::int64_t batch) {
          ++begun;
          std::this_thread::sleep_for(5ms);
          ++ended;
          return value_of(epoch, batch);
        },
        1000, 4, 8);
    loader.next();
  }
  EXPECT_EQ(begun, ended) << "the loader ended before its threads had: they would use memory that is gone";
  EXPECT_LT(ended, 40) << "the destructor read the rest of the epoch first";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "the destructor took too long";
}

}  // namespace
