#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
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

#ifdef __SANITIZE_THREAD__
constexpr std::chrono::seconds kPatience = 60s;
#else
constexpr std::chrono::seconds kPatience = 8s;
#endif

// Ends the program, with words, if the test that has one takes longer.
class Watchdog {
 public:
  explicit Watchdog(const char* why)
      : thread_([this, why] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, kPatience, [&] { return is_over_; })) return;
          std::cerr << "After " << kPatience.count() << " s the test hangs: " << why << std::endl;
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
  for (int i = 0; i < 3000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

// Image i is 3 x 4, all pixels 100 i + place + 1; its class is i % 10. Some samples take longer than others.
struct Slow : Source {
  explicit Slow(std::int64_t n, int microseconds = 0) : size_(n), microseconds_(microseconds) {}
  std::int64_t size() const override { return size_; }
  Shape image_shape() const override { return {1, 3, 4}; }
  std::string name(std::int64_t sample) const override { return "slow/" + std::to_string(sample) + ".png"; }
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
    ++ended;
    return static_cast<int>(sample % 10);
  }

  std::function<void(std::int64_t)> before_writing;
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
                 "rows stand where the order says, not where a thread found room";
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
    if (now > most) most = now;
    for (int i = 0; i < 2000 && most < 3; ++i) std::this_thread::sleep_for(1ms);
    --inside;
  };
  Loader loader(source, {.batch_size = 3, .workers = 3, .slots = 1});
  loader.start(0);
  loader.next();
  EXPECT_EQ(most, 3)
      << "of three workers, at most " << most
      << " read at the same time: the lock is held while a sample is read, so threads take turns";
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
      EXPECT_NE(said.find("slow/" + std::to_string(first) + ".png"), std::string::npos)
          << "the message must name the sample, the first bad one in the batch, whoever was faster; it says: "
          << said;
      EXPECT_NE(said.find(std::to_string(first)), std::string::npos) << said;
      EXPECT_NE(said.find("a byte is wrong"), std::string::npos)
          << "the message must keep the reason; it says: " << said;
    }
    const Dataset* after = loader.next();
    ASSERT_NE(after, nullptr) << "after a bad batch the next one must come";
    EXPECT_EQ(after->labels[0], order[15] % 10)
        << "after a bad batch the next one must come, not one further or the same";
    while (loader.next()) continue;
  }
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
  const Slow many(8000, 2000);
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
  Loader empty(source, {.batch_size = 11});
  EXPECT_EQ(empty.batches(), 0);
  empty.start(0);
  EXPECT_EQ(empty.next(), nullptr) << "fewer samples than a batch: an epoch without batches";
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
