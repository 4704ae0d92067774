#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>

#include <gtest/gtest.h>
#include <pthread.h>

#include "data/loader.h"
#include "tensor/base/error.h"
#include "tests/support/loader_steps.h"
#include "tests/support/made_up_set.h"

namespace athanor::loader_threads_test {

/// Whose names begin like that.
std::int64_t threads_of_this_process(const std::string& name = "") {
  std::int64_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string its;
    std::getline(std::ifstream(task.path() / "comm"), its);
    count += its.starts_with(name) ? 1 : 0;
  }
  return count;
}

/// Threads that are there before a loader is made. With the first one, a sanitizer makes one of its own; and
/// one that was joined, here or by the test before, is listed a while longer.
std::int64_t threads_without_loaders() {
  std::jthread([] { pthread_setname_np(pthread_self(), "loader/none"); }).join();
  EXPECT_TRUE(test::becomes_true([] { return threads_of_this_process("loader/") == 0; }));
  return threads_of_this_process();
}

/// kB of memory that no file is behind.
std::int64_t anonymous_kb() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("Anonymous:")) return std::stoll(line.substr(10));
  }
  return 0;
}

TEST(LoaderThreads, StartOnceAndMemoryStaysConstant) {
  test::MadeUpSet train(64), held_out(20);
  test::Gate gate;
  train.before = held_out.before = [&](std::int64_t) { gate.wait(); };
  const std::int64_t before = threads_without_loaders();
  {
    Loader loader(train, {.batch_size = 8, .shuffle = true, .training = true, .workers = 3});
    Loader validation(held_out, {.batch_size = 8, .workers = 2});
    loader.start_epoch(0);
    validation.start_epoch(0);
    // Each has its first row now, and with it what memory a thread takes.
    EXPECT_TRUE(test::becomes_true([&] { return train.threads() == 3 && held_out.threads() == 2; }));
    gate.open();
    [[maybe_unused]] std::int64_t warm_kb = 0;
    for (std::int64_t epoch = 0; epoch < 100; ++epoch) {
      EXPECT_EQ(test::steps_of(loader, epoch).size(), 8u);
      EXPECT_EQ(test::steps_of(validation, 0).size(), 3u);
      ASSERT_EQ(threads_of_this_process() - before, 5);
      if (epoch == 20) warm_kb = anonymous_kb();
    }
    EXPECT_EQ(train.threads(), 3u) << "others than those that were made have read";
    EXPECT_EQ(held_out.threads(), 2u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LE(static_cast<double>(anonymous_kb()), 1.01 * static_cast<double>(warm_kb));
#endif
  }
  EXPECT_TRUE(test::becomes_true([&] { return threads_of_this_process() == before; }));
}

TEST(LoaderThreads, ReadNoFurtherAheadThanThereAreSlots) {
  for (const int workers : {1, 2, 7}) {
    const test::MadeUpSet data(1000);
    Loader loader(data, {.batch_size = 4, .workers = workers, .prefetch = 3});
    Batch batch;
    for (std::int64_t step = 0; step < 5; ++step) {
      ASSERT_TRUE(loader.next(batch));
      // The caller holds one slot, two are read ahead.
      EXPECT_TRUE(test::becomes_true([&] { return data.reads.load() == 4 * (step + 3); }));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(data.reads.load(), 4 * (step + 3));
      EXPECT_EQ(batch.samples.to_vector().front(), static_cast<double>(4 * step)) << "the caller's own still";
    }
  }
}

TEST(LoaderThreads, ContinueAcrossTheEndOfAnEpoch) {
  const test::MadeUpSet data(12);
  Loader loader(data, {.batch_size = 4, .shuffle = true, .training = true, .workers = 2, .epochs = 2});
  Batch batch;
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(loader.next(batch));
  EXPECT_TRUE(test::becomes_true([&] { return data.reads.load() == 12 + 3 * 4; })) << "without being asked";
  EXPECT_EQ(data.latest_epoch(), 1);
  EXPECT_FALSE(loader.next(batch));
  EXPECT_EQ(test::steps_of(loader, 1).size(), 3u);
  EXPECT_EQ(data.reads.load(), 24) << "nothing was read twice, and nothing for an epoch that is not to be";
  EXPECT_EQ(test::steps_of(loader, 2).size(), 3u) << "unless it is asked for";
  EXPECT_EQ(test::steps_of(loader, 3).size(), 3u);
}

// Where each validation is like the one before, its first batches are there when it begins.
TEST(LoaderThreads, ValidationsAreReadAhead) {
  const test::MadeUpSet data(12);
  Loader loader(data, {.batch_size = 4, .workers = 2});
  for (int pass = 0; pass < 5; ++pass) EXPECT_EQ(test::steps_of(loader, 0).size(), 3u);
  EXPECT_TRUE(test::becomes_true([&] { return data.reads.load() == 5 * 12 + 4 * 4; }));
  const auto first = test::steps_of(loader, 0);
  loader.start_epoch(0);
  Batch batch;
  loader.next(batch);
  EXPECT_EQ(test::steps_of(loader, 0), first) << "left in the middle";
}

TEST(LoaderThreads, EndWithTheLoaderInAnyState) {
  const auto at = [](const char* what, const std::function<void(Loader&, const test::MadeUpSet&)>& bring_it) {
    SCOPED_TRACE(what);
    for (int round = 0; round < 20; ++round) {
      test::MadeUpSet data(100);
      data.before = [](std::int64_t index) {
        test::take_a_while(index);
        if (index == 99) throw IoError("made-up: gone");
      };
      Loader loader(data, {.batch_size = 5, .shuffle = false, .workers = 4});
      bring_it(loader, data);
    }
  };
  Batch batch;
  at("untouched", [](Loader&, const test::MadeUpSet&) {});
  at("just begun", [](Loader& loader, const test::MadeUpSet&) { loader.start_epoch(0); });
  at("in the first reads", [](Loader& loader, const test::MadeUpSet& data) {
    loader.start_epoch(0);
    test::becomes_true([&] { return data.reads.load() > 0; });
  });
  at("all slots full", [](Loader& loader, const test::MadeUpSet& data) {
    loader.start_epoch(0);
    test::becomes_true([&] { return data.reads.load() == 20; });
  });
  at("a batch in use", [&](Loader& loader, const test::MadeUpSet&) { loader.next(batch); });
  at("elsewhere", [&](Loader& loader, const test::MadeUpSet&) {
    loader.next(batch);
    loader.start_epoch(7, 50);
  });
  at("an error waits to be told", [](Loader& loader, const test::MadeUpSet&) { loader.start_epoch(0, 90); });
  at("an error was told", [&](Loader& loader, const test::MadeUpSet&) {
    loader.start_epoch(0, 95);
    EXPECT_THROW(loader.next(batch), IoError);
  });
  at("the caller throws", [&](Loader&, const test::MadeUpSet& data) {
    const auto train = [&] {
      Loader other(data, {.batch_size = 5, .workers = 4});
      other.next(batch);
      throw std::runtime_error("the caller's own");
    };
    EXPECT_THROW(train(), std::runtime_error);
  });
}

TEST(LoaderThreads, ShutdownWaitsOnlyForReadsInFlight) {
  for (const std::int64_t batch_size : {10, 1024}) {  // of the larger, a thread takes 16 rows at a time
    test::MadeUpSet data(2000);
    test::Gate gate;
    data.before = [&](std::int64_t) { gate.wait(); };
    const std::int64_t before = threads_without_loaders();
    // Three threads work, and five are parked.
    std::optional<Loader> loader(std::in_place, data, LoaderOptions{.batch_size = batch_size, .cores = 4});
    loader->start_epoch(0);
    gate.wait_for_someone(3);
    EXPECT_TRUE(test::becomes_true([] { return threads_of_this_process("loader/7") == 1; }));
    std::future<void> end = std::async(std::launch::async, [&] { loader.reset(); });
    // They are asked to stop one after the other: when the last of those that are parked is gone, all were.
    EXPECT_TRUE(test::becomes_true([] { return threads_of_this_process("loader/7") == 0; }));
    EXPECT_EQ(end.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
    EXPECT_TRUE(test::becomes_true([] { return threads_of_this_process("loader/") == 3; }))
        << "those that read";
    gate.open();
    end.get();
    EXPECT_EQ(data.reads.load(), 3);
    EXPECT_EQ(data.threads(), 3u);
    EXPECT_TRUE(test::becomes_true([&] { return threads_of_this_process() == before; }));
  }
}

TEST(LoaderThreads, ARestartWaitsForReadsInFlightAndDropsThem) {
  test::MadeUpSet data(300);
  data.before = test::take_a_while;
  for (const std::int64_t size : {10, 150}) {  // of the larger, a thread takes 3 rows at a time
    Loader loader(data, {.batch_size = size, .shuffle = true, .training = true, .workers = 5});
    Loader straight(data, {.batch_size = size, .shuffle = true, .training = true, .workers = 0});
    Batch batch;
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::int64_t epoch = i % 3, delivered = i * 7 * size % 300;
      loader.start_epoch(epoch, delivered);
      straight.start_epoch(epoch, delivered);
      for (int step = 0; step < i % 4; ++step) {
        ASSERT_EQ(loader.next(batch), true);
        const test::LoadedBatch seen = test::copy_of(batch);
        straight.next(batch);
        EXPECT_EQ(seen, test::copy_of(batch));
        if (delivered + size * (step + 1) == 300) break;
      }
    }
  }
}

// How many threads work is found out, and never how many there are. What is found has a table of its own
// (worker_tuner_test.cpp); here the tuner is told of time that goes by, and threads do what it says.
TEST(LoaderThreads, AutoStartsAsManyAsHelp) {
  using std::chrono::milliseconds;
  const std::int64_t before = threads_without_loaders();
  Batch batch;
  {
    // The caller does nothing but wait: after a round, one thread more is awake, and reads. That is after 12
    // steps here, since the first of an epoch does not count.
    constexpr std::int64_t kRows = 6, kSteps = 6;
    test::MadeUpSet slow(kRows * kSteps);
    test::Gate gate;
    std::atomic<std::int64_t> begun{0};
    slow.before = [&](std::int64_t) {
      if (++begun > 13 * kRows) gate.wait();  // nothing that the 13th step waits for
      std::this_thread::sleep_for(milliseconds(1));
    };
    Loader loader(slow, {.batch_size = kRows, .cores = 3, .prefetch = 2});
    for (int step = 1; step <= 13; ++step) {
      if (step % kSteps == 1) loader.start_epoch(step / kSteps);
      EXPECT_TRUE(loader.next(batch));
      EXPECT_EQ(loader.stats().workers, step < 12 ? 2 : 3) << "step " << step;
      EXPECT_LE(slow.threads(), step < 12 ? 2u : 3u);
    }
    EXPECT_TRUE(test::becomes_true([&] { return slow.threads() == 3; }));
    EXPECT_TRUE(test::becomes_true([&] { return threads_of_this_process() - before == 6; }));
    gate.open();
  }
  for (const int workers : {LoaderOptions::kAuto, 2}) {
    // A caller with work of its own finds each batch there: one thread is enough, unless two were asked for.
    test::MadeUpSet fast(1000);
    std::atomic<std::int64_t> done{0};
    fast.label = [&](std::int64_t) {
      ++done;
      return 0;
    };
    Loader loader(fast, {.batch_size = 1, .workers = workers, .cores = 3});
    EXPECT_EQ(loader.stats().workers, 2);
    for (int step = 1; step <= 11; ++step) {
      EXPECT_TRUE(loader.next(batch));
      EXPECT_TRUE(test::becomes_true([&] { return done == step + 3; })) << "three are read ahead";
      std::this_thread::sleep_for(milliseconds(50));  // and handed over, on a busy machine, too
    }
    EXPECT_EQ(loader.stats().workers, workers == 2 ? 2 : 1);
    EXPECT_EQ(loader.stats().threads, workers == 2 ? 2 : 6);
  }
}

TEST(LoaderThreads, CountWhatTheyDo) {
  constexpr std::int64_t kSamples = 64, kRows = 8;
  for (const int workers : {0, 2}) {
    test::MadeUpSet data(kSamples);
    std::atomic<std::int64_t> asleep_ns{0};
    data.before = [&](std::int64_t) {
      const auto began = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      asleep_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
    };
    // Nothing is read ahead: each batch but the first is begun when it is asked for.
    Loader loader(data, {.batch_size = kRows, .workers = workers, .prefetch = 1, .epochs = 1});
    const auto began = std::chrono::steady_clock::now();
    test::steps_of(loader, 0);
    const LoaderStats stats = loader.stats();
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const int at_once = std::max(workers, 1);
    EXPECT_EQ(stats.threads, workers);
    EXPECT_GT(stats.waits.data_s, 0.002 * (kSamples - kRows) / at_once) << "there is nothing else to do";
    EXPECT_LE(stats.waits.data_s, wall_s);
    if (workers > 0) {
      EXPECT_GE(stats.busy * workers * wall_s, 0.999e-9 * static_cast<double>(asleep_ns))
          << "seconds of reading";
    }
    EXPECT_LE(stats.busy, workers > 0 ? 1.01 : 0);
    loader.start_epoch(0);
    EXPECT_EQ(loader.waits().data_s, 0);
  }
}

}  // namespace athanor::loader_threads_test
