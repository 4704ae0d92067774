#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "loader.h"

namespace engine {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kPatience = 8s;

// Ends the program, with words, if the test that has one hangs: the program has computed next to nothing for
// so long, which is sure on a busy machine, too; or it has not ended after twenty times as long.
class Watchdog {
 public:
  explicit Watchdog(const char* why)
      : thread_([this, why] {
          using Clock = std::chrono::steady_clock;
          const Clock::time_point begin = Clock::now();
          Clock::time_point since = begin;
          std::clock_t computed = std::clock();  // by all threads
          std::unique_lock lock(mutex_);
          while (Clock::now() < since + kPatience && Clock::now() < begin + 20 * kPatience) {
            if (over_.wait_for(lock, 500ms, [&] { return is_over_; })) return;
            if (std::clock() - computed < CLOCKS_PER_SEC / 50) continue;
            since = Clock::now();
            computed = std::clock();
          }
          std::cerr << "For " << kPatience.count() << " s or longer the test hangs: " << why << std::endl;
          std::_Exit(3);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 20000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

// Image i is 3 x 4, all pixels 100 i + place + 1; its class is i % 10. Some samples take longer than others.
struct Slow : Source {
  explicit Slow(std::int64_t n, int microseconds = 0) : size_(n), microseconds_(microseconds) {}
  std::int64_t size() const override { return size_; }
  Shape image_shape() const override { return {1, 3, 4}; }
  // Without the sample's number: an error must have both.
  std::string name(std::int64_t sample) const override {
    return "slow/" + std::string(static_cast<std::size_t>(sample % 50) + 1, 'x') + ".png";
  }
  int read(std::int64_t sample, float* image) const override {
    {
      const std::lock_guard lock(mutex);
      samples.insert(sample);
      threads.insert(std::this_thread::get_id());
    }
    ++begun;
    if (microseconds_) std::this_thread::sleep_for(std::chrono::microseconds(sample * 7919 % microseconds_));
    if (before_writing) before_writing(sample);
    for (int i = 0; i < 12; ++i) image[i] = static_cast<float>(100 * sample + i + 1);
    if (after_writing) after_writing();
    ++ended;
    return static_cast<int>(sample % 10);
  }

  std::function<void(std::int64_t)> before_writing;
  std::function<void()> after_writing;
  mutable std::atomic<int> begun = 0, ended = 0;
  mutable std::mutex mutex;
  mutable std::multiset<std::int64_t> samples;
  mutable std::set<std::thread::id> threads;

 private:
  std::int64_t size_;
  int microseconds_;
};

// What the batch must hold, computed without a loader.
struct Plain {
  std::vector<float> pixels;
  std::vector<int> labels;
};
Plain batch_without_loader(const Source& source, const Loader::Options& options, std::int64_t epoch,
                           std::int64_t batch) {
  const std::vector<std::int64_t> order = epoch_order(source.size(), options.seed, epoch);
  const std::int64_t count = numel(source.image_shape());
  Plain plain;
  for (std::int64_t row = 0; row < options.batch_size; ++row) {
    const std::int64_t sample = order[static_cast<std::size_t>(batch * options.batch_size + row)];
    std::vector<float> image(static_cast<std::size_t>(count)), shifted(image.size());
    plain.labels.push_back(source.read(sample, image.data()));
    const auto [down, right] = random_shift(options.seed, epoch, sample, options.most_shift);
    shift_image(image.data(), shifted.data(), source.image_shape(), down, right);
    plain.pixels.insert(plain.pixels.end(), shifted.begin(), shifted.end());
  }
  return plain;
}

// ---- Moving an image.

TEST(Shift, MovesTheImageAndFillsWithZeros) {
  const std::vector<float> image{1, 2, 3, 4, 5, 6, /* the second channel */ 10, 20, 30, 40, 50, 60};
  const auto shifted = [&](std::int64_t down, std::int64_t right) {
    std::vector<float> to(12, -1);
    shift_image(image.data(), to.data(), {2, 2, 3}, down, right);
    return to;
  };
  EXPECT_EQ(shifted(0, 0), image);
  EXPECT_EQ(shifted(1, 0), (std::vector<float>{0, 0, 0, 1, 2, 3, 0, 0, 0, 10, 20, 30}))
      << "one row down: the first row becomes 0, in every channel";
  EXPECT_EQ(shifted(0, 1), (std::vector<float>{0, 1, 2, 0, 4, 5, 0, 10, 20, 0, 40, 50}))
      << "one column to the right: what leaves a row at its end must not come in at the next row's beginning";
  EXPECT_EQ(shifted(-1, -2), (std::vector<float>{6, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0}))
      << "negative numbers: up and to the left";
  EXPECT_EQ(shifted(2, 0), std::vector<float>(12, 0)) << "moved out of the image altogether";
  EXPECT_EQ(shifted(0, -3), std::vector<float>(12, 0)) << "moved out of the image altogether";
}

TEST(Shift, IsAFunctionOfSeedEpochAndSample) {
  const auto both = [](std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    const Shift shift = random_shift(seed, epoch, sample, 2);
    return std::pair(shift.down, shift.right);
  };
  const auto row = [&](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::pair<std::int64_t, std::int64_t>> shifts;
    for (std::int64_t sample = 0; sample < 500; ++sample) shifts.push_back(both(seed, epoch, sample));
    return shifts;
  };
  const auto first = row(7, 3);
  EXPECT_EQ(row(7, 3), first) << "asked again, a sample was moved otherwise: a generator with a state gives "
                                 "what its callers' order makes it give";
  EXPECT_NE(row(7, 4), first) << "in another epoch the same image must move elsewhere";
  EXPECT_NE(row(8, 3), first) << "with another seed the same image must move elsewhere";
  EXPECT_NE(row(3, 7), first) << "seed 7 in epoch 3 and seed 3 in epoch 7 must differ: their sum is no key";
  EXPECT_NE(row(8, 2), first) << "seed 7 in epoch 3 and seed 8 in epoch 2 must differ: their sum is no key";
  std::multiset<std::pair<std::int64_t, std::int64_t>> counts(first.begin(), first.end());
  for (std::int64_t down = -2; down <= 2; ++down)
    for (std::int64_t right = -2; right <= 2; ++right)
      EXPECT_GT(counts.count({down, right}), 5u)
          << "of 500 samples, about 20 must move by (" << down << ", " << right << ")";
  for (const auto& [down, right] : first)
    ASSERT_TRUE(std::abs(down) <= 2 && std::abs(right) <= 2) << "at most two pixels were asked for";
  EXPECT_EQ(random_shift(7, 3, 5, 0).down, 0);
  const auto far = row(7, 1003), other = row(8, 3);
  int same = 0, neighbours = 0;
  for (std::size_t i = 0; i < far.size(); ++i) same += far[i] == other[i];
  for (std::size_t i = 1; i < first.size(); ++i) neighbours += first[i - 1].second == first[i].first;
  EXPECT_LT(same, 250)
      << "seed 7 in epoch 1003 and seed 8 in epoch 3 move " << same
      << " of 500 samples alike: a sum such as 1000 seed + epoch is no key, but a number that "
         "random_bits draws is";
  EXPECT_LT(neighbours, 250) << "sample s moves to the right as far as sample s + 1 moves down, for "
                             << neighbours
                             << " of 499: both draw at one place. Places 2 s and 2 s + 1 belong to sample s "
                                "alone";
}

TEST(InMemory, ReadsADataset) {
  Dataset data{Tensor({2, 1, 1, 3}, {1, 2, 3, 4, 5, 6}), {8, 9}};
  const InMemory source(data);
  EXPECT_EQ(source.size(), 2);
  EXPECT_EQ(source.image_shape(), (Shape{1, 1, 3}));
  std::vector<float> image(3);
  EXPECT_EQ(source.read(1, image.data()), 9);
  EXPECT_EQ(image, (std::vector<float>{4, 5, 6}));
}

// ---- Batches.

TEST(Loader, GivesTheSameBatchesForAnyNumberOfWorkers) {
  const Watchdog watchdog(
      "next() waits for a batch that no thread reads. With 0 workers, it must read itself");
  const Slow source(50, 200);
  for (const int workers : {0, 1, 2, 5})
    for (const int slots : {1, 3}) {
      const Loader::Options options{
          .batch_size = 8, .workers = workers, .slots = slots, .most_shift = 1, .seed = 5};
      Loader loader(source, options);
      ASSERT_EQ(loader.batches(), 6) << "50 samples are 6 whole batches of 8";
      EXPECT_EQ(loader.next(), nullptr) << "before start() there is no batch";
      for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        loader.start(epoch);
        for (std::int64_t batch = 0; batch < 6; ++batch) {
          const std::string where = "epoch " + std::to_string(epoch) + ", batch " + std::to_string(batch) +
                                    ", " + std::to_string(workers) + " workers, " + std::to_string(slots) +
                                    " slots: ";
          const Dataset* got = loader.next();
          ASSERT_NE(got, nullptr) << where << "the epoch has 6 batches";
          ASSERT_EQ(got->images.shape(), (Shape{8, 1, 3, 4}));
          const Plain plain = batch_without_loader(source, options, epoch, batch);
          ASSERT_EQ(got->labels, plain.labels)
              << where
              << "other samples, or in another order, than epoch_order() has: batches must come in order, "
                 "not as they are ready, and "
                 "rows stand where the order says, not where a thread found room. Or the slot was given out "
                 "before it was read: one that was never begun has no missing rows either";
          ASSERT_EQ(got->images.values(), plain.pixels)
              << where
              << "the samples are right and their pixels are not: the shift must be random_shift(seed, "
                 "epoch, sample), and no row "
                 "be given out before it is written, or written while it is used";
        }
        EXPECT_EQ(loader.next(), nullptr) << "at the end of an epoch next() returns null";
        EXPECT_EQ(loader.next(), nullptr) << "and again, until start()";
      }
    }
  Slow lingering(24);
  lingering.after_writing = [] { std::this_thread::sleep_for(1ms); };
  const Loader::Options moved{.batch_size = 8, .workers = 4, .slots = 3, .most_shift = 1, .seed = 5};
  Loader four(lingering, moved);
  four.start(0);
  for (std::int64_t batch = 0; batch < 3; ++batch) {
    const Dataset* got = four.next();
    ASSERT_NE(got, nullptr);
    ASSERT_EQ(got->images.values(), batch_without_loader(lingering, moved, 0, batch).pixels)
        << "two workers read into one memory before they move the image: what is not yet moved must be each "
           "worker's own";
  }
  const Slow three(3);
  Loader loader(three, {.batch_size = 3, .workers = 4, .slots = 8, .seed = 5});
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch) {
    loader.start(epoch);
    const Dataset* got = loader.next();
    ASSERT_NE(got, nullptr);
    const auto order = epoch_order(3, 5, epoch);
    ASSERT_EQ(got->labels, std::vector<int>(order.begin(), order.end()))
        << "epoch " << epoch
        << " of 2000 small ones has the order of another: look the sample up while the ticket is taken, "
           "before the mutex is unlocked, for another thread may compute the next epoch's order at any time";
  }
}

TEST(Loader, ReadsAheadAndNoFurtherThanItsSlots) {
  const Watchdog watchdog("next() waits for a batch that no thread reads");
  const Slow source(1000);
  Loader loader(source, {.batch_size = 5, .workers = 3, .slots = 4});
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(source.begun, 0)
      << "before start() it is not known which samples are needed: nothing must be read";
  loader.start(0);
  EXPECT_TRUE(soon([&] { return source.begun >= 20; }))
      << "4 slots of 5 samples must be filled without a request";
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(source.begun, 20) << "4 slots have room for 20 samples; the threads must wait for a free slot";
  loader.next();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(source.begun, 20) << "the caller uses its batch until the next call: its slot is not free yet";
  loader.next();
  EXPECT_TRUE(soon([&] { return source.begun >= 25; }))
      << "the second next() gives the first slot back, to be filled again";
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(source.begun, 25);
}

TEST(Loader, ReadsWithAllWorkersAtOnce) {
  const Watchdog watchdog("next() waits for a batch that is never read");
  Slow source(60);
  std::atomic<int> inside = 0, most = 0;
  source.before_writing = [&](std::int64_t) {
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
    for (int i = 0; i < 5000 && most < 3; ++i) std::this_thread::sleep_for(1ms);
    --inside;
  };
  Loader loader(source, {.batch_size = 3, .workers = 3, .slots = 1});
  loader.start(0);
  loader.next();
  ASSERT_GT(most, 0) << "next() gave a batch of which no row was read: a slot that was never begun has no "
                        "missing rows either, so ask also whether all tickets of the step were issued";
  EXPECT_EQ(most, 3)
      << "of three workers, at most " << most
      << " read at the same time: the lock is held while a sample is read, so threads take turns";
  std::this_thread::sleep_for(20ms);  // now all workers wait for a free slot
  most = 0;
  loader.next();
  EXPECT_EQ(most, 3) << "next() freed a slot, which is three tickets for three waiting workers, but at most "
                     << most << " read at the same time: wake all of them, by notify_all";
}

TEST(Loader, AllocatesItsSlotsOnce) {
  const Watchdog watchdog("next() waits for a batch that no thread reads");
  const Slow source(60);
  Loader loader(source, {.batch_size = 4, .workers = 2, .slots = 3});
  std::set<const float*> memory;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    loader.start(epoch);
    while (const Dataset* batch = loader.next()) memory.insert(batch->images.data());
  }
  EXPECT_EQ(memory.size(), 3u) << "60 batches came from " << memory.size()
                               << " places in memory; three slots are three places";
}

TEST(Loader, GoesOnIntoTheNextEpochWithTheSameThreads) {
  const Watchdog watchdog("next() waits for a batch that no thread reads");
  const Slow source(40);
  Loader loader(source, {.batch_size = 5, .workers = 2, .slots = 3});
  for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
    loader.start(epoch);
    while (loader.next()) continue;
    EXPECT_TRUE(soon([&] { return source.begun >= 40 * (epoch + 1) + 15; }))
        << "at the end of epoch " << epoch
        << " all slots are free: they must fill with the next epoch while the caller validates";
  }
  loader.start(6);
  const std::lock_guard lock(source.mutex);
  EXPECT_LE(source.begun, 40 * 6 + 15)
      << "start() of the epoch that is being read already must not read anything again";
  EXPECT_LE(source.threads.size(), 2u)
      << source.threads.size()
      << " threads have read in six epochs: the two workers must live as long as the loader";
  EXPECT_FALSE(source.threads.contains(std::this_thread::get_id()))
      << "the caller read a sample itself, though there are workers";
}

TEST(Loader, NamesASampleThatCannotBeReadAtItsBatch) {
  const Watchdog watchdog(
      "a worker's exception must reach next(), and its row count as done: the batch is waited for, but its "
      "thread is gone");
  const std::vector<std::int64_t> order = epoch_order(30, 1, 0);
  for (const int workers : {3, 1, 0}) {
    Slow source(30, 300);
    const std::int64_t first = order[13], second = order[14];
    source.before_writing = [&](std::int64_t sample) {
      if (sample == first) std::this_thread::sleep_for(2ms);
      if (sample == first) throw std::runtime_error("a byte is wrong");
      if (sample == second) throw std::runtime_error("it is too short");
    };
    Loader loader(source, {.batch_size = 5, .workers = workers, .slots = 4});
    loader.start(0);
    EXPECT_NO_THROW(loader.next())
        << "the first two batches are whole: they must come, whenever the bad sample was read";
    EXPECT_NO_THROW(loader.next());
    try {
      loader.next();
      FAIL() << "sample " << first
             << " cannot be read, and batch 2 came without a word: its row holds what was there before";
    } catch (const std::runtime_error& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find(source.name(first)), std::string::npos)
          << "the message must have the name of the sample, " << source.name(first)
          << ", the first bad one in the batch, whoever was faster; it says: " << said;
      EXPECT_NE(said.find(std::to_string(first)), std::string::npos)
          << "the message must have the sample's number, " << first << ", beside its name; it says: " << said;
      EXPECT_NE(said.find("a byte is wrong"), std::string::npos)
          << "the message must keep the reason; it says: " << said;
    }
    const Dataset* after = loader.next();
    ASSERT_NE(after, nullptr) << "after a bad batch the next one must come";
    EXPECT_EQ(after->labels[0], order[15] % 10)
        << "after a bad batch the next one must come, not one further or the same";
    while (loader.next()) continue;
  }
  const auto handler = std::set_terminate([] {
    std::cerr << "read() threw an int, which is no std::exception, and the program ended: catch (...), too"
              << std::endl;
    std::_Exit(3);
  });
  for (const int workers : {2, 0}) {
    Slow source(30);
    source.before_writing = [&](std::int64_t sample) {
      if (sample == order[7]) throw 7;
    };
    Loader loader(source, {.batch_size = 5, .workers = workers, .slots = 4});
    loader.start(0);
    EXPECT_NO_THROW(loader.next());
    try {
      loader.next();
      FAIL() << "read() threw an int for sample " << order[7] << ", and its batch came without a word";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(source.name(order[7])), std::string::npos)
          << "read() threw an int: the message must have the sample's name all the same; it says: "
          << error.what();
    } catch (...) {
      ADD_FAILURE() << "read() threw an int, and so did next(): it must be a std::runtime_error that has the "
                       "sample's number and name";
    }
  }
  std::set_terminate(handler);
}

TEST(Loader, GivesNoErrorTwice) {
  const Watchdog watchdog("after an exception, start() or next() waits for ever");
  Slow source(20);
  std::atomic<bool> broken = true;
  source.before_writing = [&](std::int64_t) {
    if (broken) throw std::runtime_error("no disk");
  };
  Loader loader(source, {.batch_size = 5, .workers = 2, .slots = 2});
  loader.start(0);
  EXPECT_THROW(loader.next(), std::runtime_error);
  broken = false;
  loader.start(0);
  EXPECT_NO_THROW(EXPECT_NE(loader.next(), nullptr))
      << "the disk is back, and the batch was read again: the slot still has the old error";
}

TEST(Loader, ResumesWithoutReadingWhatWasBefore) {
  const Watchdog watchdog("next() waits for a batch that no thread reads");
  const Slow whole(60), rest(60);
  const Loader::Options options{.batch_size = 5, .workers = 2, .slots = 3, .most_shift = 1, .seed = 3};
  Loader resumed(rest, options);
  resumed.start(2, 9);
  const std::vector<std::int64_t> order = epoch_order(60, 3, 2);
  for (std::int64_t batch = 9; batch < 12; ++batch) {
    const Dataset* got = resumed.next();
    ASSERT_NE(got, nullptr);
    const Plain plain = batch_without_loader(whole, options, 2, batch);
    EXPECT_EQ(got->labels, plain.labels)
        << "resumed at batch 9 of epoch 2, the loader gives other samples than a run without a break";
    EXPECT_EQ(got->images.values(), plain.pixels)
        << "resumed, the loader gives the same samples with another shift: a random number depends on what "
           "was drawn before it";
    if (batch == 9) {
      const std::lock_guard lock(rest.mutex);
      for (int i = 0; i < 45; ++i)
        ASSERT_FALSE(rest.samples.contains(order[static_cast<std::size_t>(i)]))
            << "sample " << order[static_cast<std::size_t>(i)] << " was read: it is of batch " << i / 5
            << ", which is before batch 9";
      EXPECT_LE(rest.begun, 15) << "three slots have room for 15 samples";
    }
  }
  EXPECT_EQ(resumed.next(), nullptr) << "resumed at batch 9 of 12, an epoch has three batches left";
  resumed.start(5, 12);
  EXPECT_EQ(resumed.next(), nullptr)
      << "a run that was saved at the end of an epoch resumes there: no batch is left";
  resumed.start(6);
  EXPECT_NE(resumed.next(), nullptr);
}

TEST(Loader, JumpsWhileWorkersRead) {
  const Watchdog watchdog(
      "start() waits for workers, and they for it; or start() did not wait for the readers, and their rows "
      "were counted twice");
  const Slow plain(60);
  Slow source(60, 2000);
  source.before_writing = [](std::int64_t) { std::this_thread::sleep_for(1ms); };
  const Loader::Options options{.batch_size = 6, .workers = 4, .slots = 3, .seed = 2};
  Loader loader(source, options);
  for (std::int64_t jump = 0; jump < 40; ++jump) {
    // A worker has just begun to read, and will write into the slot to which the jump goes: all steps here
    // have slot 0.
    const int begun = source.begun;
    for (int i = 0; jump > 0 && i < 100 && source.begun == begun; ++i) std::this_thread::sleep_for(100us);
    const std::int64_t step = options.slots * (jump * 7 % 16), epoch = step / 10, batch = step % 10;
    loader.start(epoch, batch);
    if (jump % 3 == 0) continue;
    const Dataset* got = loader.next();
    ASSERT_NE(got, nullptr);
    const Plain expected = batch_without_loader(plain, options, epoch, batch);
    ASSERT_TRUE(got->labels == expected.labels && got->images.values() == expected.pixels)
        << "after a jump to epoch " << epoch << ", batch " << batch
        << ": a worker that still read for the old place wrote into the new batch, or start() did not wait "
           "for "
           "the readers, and their rows were counted twice";
  }
  // Three samples of the old place are read when start() is called. Each that is begun after them takes two
  // seconds, so that start() gets the lock before nine are begun, on a busy machine, too.
  Slow busy(400);
  std::atomic<bool> jumps = false, jumped = false;
  std::atomic<int> nth = 0, old = 0;
  busy.before_writing = [&](std::int64_t) {
    const int mine = ++nth;
    if (!jumped) ++old;
    for (int i = 0; i < 5000 && !jumps; ++i) std::this_thread::sleep_for(1ms);
    if (mine <= 3) std::this_thread::sleep_for(50ms);
    for (int i = 0; i < 2000 && mine > 3 && mine < 10 && !jumped; ++i) std::this_thread::sleep_for(1ms);
  };
  Loader full(busy, {.batch_size = 1, .workers = 3, .slots = 200});
  full.start(0);
  ASSERT_TRUE(soon([&] { return nth >= 3; })) << "three workers must read";
  jumps = true;
  full.start(5);
  jumped = true;
  const int begun_meanwhile = old;
  EXPECT_LT(begun_meanwhile, 200)
      << "start() for another place let the threads read on for the old one until all 200 slots were full: "
         "stop issuing tickets before you wait for the readers";
}

TEST(Loader, EndsAtAnyMoment) {
  const Watchdog watchdog(
      "the destructor waits for a worker, which waits for a free slot or for start(): wake all before you "
      "join them");
  for (int round = 0; round < 30; ++round) {
    const Slow source(200, 500);
    {
      Loader loader(source, {.batch_size = 4, .workers = 3, .slots = 1 + round % 3});
      if (round % 5) loader.start(round);
      for (int i = 0; i < round % 4; ++i) loader.next();
      if (round % 2) std::this_thread::sleep_for(3ms);
    }
    EXPECT_EQ(source.begun, source.ended)
        << "the loader was gone while a worker still read: it would write to memory that is freed";
  }
  const Slow many(8000, 8000);
  {
    Loader loader(many, {.batch_size = 4, .workers = 3, .slots = 1000});
    loader.start(0);
    loader.next();
  }
  EXPECT_LT(many.begun, 4000)
      << "the destructor let the threads fill all 1000 slots first: each may only end "
         "the sample that it reads";
}

TEST(Loader, RefusesWhatItCannotDo) {
  const Watchdog watchdog("a loader with impossible options must throw");
  const Slow source(10);
  EXPECT_THROW(Loader(source, {.batch_size = 0}), std::invalid_argument);
  EXPECT_THROW(Loader(source, {.workers = -1}), std::invalid_argument);
  EXPECT_THROW(Loader(source, {.slots = 0}), std::invalid_argument);
  EXPECT_THROW(Loader(source, {.most_shift = -1}), std::invalid_argument);
  Loader loader(source, {.batch_size = 5});
  EXPECT_THROW(loader.start(-1), std::invalid_argument);
  EXPECT_THROW(loader.start(0, 3), std::invalid_argument)
      << "the epoch has two batches: 2 is its end, 3 is beyond it";
  EXPECT_THROW(loader.start(0, -1), std::invalid_argument);
  const auto handler = std::signal(SIGFPE, [](int) {
    std::fputs("fewer samples than a batch: something was divided by the number of batches, which is 0\n",
               stderr);
    std::_Exit(3);
  });
  for (const int workers : {0, 2}) {
    Loader empty(source, {.batch_size = 11, .workers = workers});
    EXPECT_EQ(empty.batches(), 0);
    for (const std::int64_t epoch : {0, 3}) {
      empty.start(epoch);
      std::this_thread::sleep_for(20ms);  // so that the workers wake
      EXPECT_EQ(empty.next(), nullptr) << "fewer samples than a batch: an epoch without batches";
    }
  }
  std::signal(SIGFPE, handler);
  EXPECT_EQ(source.begun, 0) << "fewer samples than a batch: no ticket may be issued, and nothing read";
}

// ---- Training.

TEST(Digits, TrainToTheSameBitsForAnyNumberOfWorkers) {
  const Watchdog watchdog("next() waits for a batch that no thread reads");
  const InMemory source(read_digits("digits.csv", true));
  std::vector<float> with_none;
  for (const int workers : {0, 1, 3}) {
    const auto layer = std::make_shared<Linear>(64, 10, 1);
    Sequential network({std::make_shared<Flatten>(), layer});
    SGD sgd(network.parameters(), {});
    Loader loader(source, {.workers = workers, .most_shift = 1});
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      loader.start(epoch);
      while (const Dataset* batch = loader.next()) {
        backward(cross_entropy(network.forward(Variable(batch->images)), batch->labels));
        sgd.step(0.05f);
        sgd.clear_grads();
      }
    }
    const std::vector<float> weights = network.parameters()[0].second.value().values();
    if (workers == 0) with_none = weights;
    EXPECT_EQ(weights, with_none) << "with " << workers
                                  << " workers the weights have other bits than with none";
  }
}

}  // namespace
}  // namespace engine
