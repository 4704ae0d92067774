#include "data/loader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "data/in_memory.h"
#include "data/preprocess.h"
#include "data/synthetic.h"
#include "tensor/base/error.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"
#include "tests/support/loader_steps.h"
#include "tests/support/made_up_set.h"
#include "tests/support/temp_dir.h"

namespace athanor::loader_test {

constexpr ImageSpec kSpec{3, 2, 2, 5};

std::vector<std::int64_t> epoch_order(Loader& loader, std::int64_t epoch) {
  std::vector<std::int64_t> order;
  Batch batch;
  loader.start_epoch(epoch);
  while (loader.next(batch)) {
    const auto* samples = batch.samples.data<std::int64_t>();
    order.insert(order.end(), samples, samples + batch.size());
  }
  return order;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(Loader, DeliversEverySampleOnceAnEpoch) {
  const auto data = synthetic(kSpec, 23);
  std::vector<std::int64_t> all(23);
  std::iota(all.begin(), all.end(), 0);
  for (const std::int64_t batch_size : {1, 4, 22, 23, 100}) {
    for (const bool shuffle : {false, true}) {
      Loader loader(*data, {.batch_size = batch_size, .shuffle = shuffle});
      for (const std::int64_t epoch : {0, 1}) {
        EXPECT_EQ(sorted(epoch_order(loader, epoch)), all) << batch_size << " " << shuffle;
      }
    }
  }
}

TEST(Loader, DropLastLeavesOutOnlyTheShortBatch) {
  const auto data = synthetic(kSpec, 23);
  Loader loader(*data, {.batch_size = 4, .shuffle = true, .drop_last = true});
  EXPECT_EQ(loader.batches_per_epoch(), 5);
  const auto order = epoch_order(loader, 0);
  EXPECT_EQ(order.size(), 20u);
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 20u);
  Loader whole(*data, {.batch_size = 50, .drop_last = true});  // fewer samples than a batch: one batch of all
  EXPECT_EQ(epoch_order(whole, 0).size(), 23u);
}

TEST(Loader, OrderIsAFunctionOfSeedAndEpoch) {
  const auto data = synthetic(kSpec, 50);
  Loader a(*data, {.batch_size = 8, .shuffle = true, .seed = 3});
  Loader b(*data, {.batch_size = 5, .shuffle = true, .seed = 3});
  Loader c(*data, {.batch_size = 8, .shuffle = true, .seed = 4});
  const auto first = epoch_order(a, 0), second = epoch_order(a, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch_order(b, 1), second);  // whatever the batch size, and without the epoch before
  EXPECT_EQ(epoch_order(a, 0), first);
  EXPECT_NE(epoch_order(c, 0), first);
}

TEST(Loader, ResumesInTheMiddleOfAnEpoch) {
  const auto data = synthetic(kSpec, 23);
  for (const bool drop_last : {false, true}) {
    const LoaderOptions options{.batch_size = 4, .shuffle = true, .drop_last = drop_last, .seed = 3};
    Loader straight(*data, options);
    const auto whole = epoch_order(straight, 2);
    for (std::int64_t at = 0; at <= straight.samples_per_epoch(); ++at) {
      SCOPED_TRACE(at);
      Loader resumed(*data, options);  // a new one: nothing is left of the epochs before
      if (at % 4 != 0 && at != straight.samples_per_epoch()) {
        EXPECT_THROW(resumed.start_epoch(2, at), ArgumentError);
        continue;
      }
      resumed.start_epoch(2, at);
      std::vector<std::int64_t> rest, sizes;
      Batch batch;
      while (resumed.next(batch)) {
        const auto* samples = batch.samples.data<std::int64_t>();
        rest.insert(rest.end(), samples, samples + batch.size());
        sizes.push_back(batch.size());
      }
      EXPECT_EQ(rest, std::vector<std::int64_t>(whole.begin() + at, whole.end()));
      for (std::size_t i = 0; i + 1 < sizes.size(); ++i) EXPECT_EQ(sizes[i], 4);
      EXPECT_EQ(epoch_order(resumed, 3), epoch_order(straight, 3));
    }
    EXPECT_THROW(straight.start_epoch(2, -4), ArgumentError);
    EXPECT_THROW(straight.start_epoch(2, 24), ArgumentError);
  }
}

TEST(Loader, BatchesHoldTheSamplesTheyName) {
  const auto data = synthetic(kSpec, 11);
  Loader loader(*data, {.batch_size = 4, .shuffle = true, .seed = 9});
  Batch batch;
  std::vector<std::int64_t> sizes;
  while (loader.next(batch)) {
    sizes.push_back(batch.size());
    ASSERT_EQ(batch.images.shape(), (Shape{batch.size(), 3, 2, 2}));
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      std::vector<std::uint8_t> image(12);
      const std::int64_t label = data->read(batch.samples.data<std::int64_t>()[i], image);
      EXPECT_EQ(batch.labels.data<std::int64_t>()[i], label);
      EXPECT_TRUE(std::equal(image.begin(), image.end(), batch.images.data<std::uint8_t>() + i * 12));
    }
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 4, 3}));
  EXPECT_FALSE(loader.next(batch));  // stays at the end
}

TEST(Loader, RejectsAnEmptyDataSet) {
  const auto none = synthetic(kSpec, 0), some = synthetic(kSpec, 3);
  EXPECT_THROW(Loader(*none, {}), ArgumentError);
  EXPECT_THROW(Loader(*some, {.batch_size = 0}), ArgumentError);
  EXPECT_THROW(Loader(*some, {.workers = -2}), ArgumentError);
  EXPECT_THROW(Loader(*some, {.prefetch = 0}), ArgumentError);
  EXPECT_THROW(Loader(*some, {.rank = 2, .world_size = 2}), ArgumentError);
  EXPECT_THROW(Loader(*some, {.page_samples = 0}), ArgumentError);
  const test::MadeUpSet files(3);
  EXPECT_THROW(Loader(files, {.data_on_device = true}), ArgumentError);
}

// Weights -------------------------------------------------------------------------------------------------

LoaderOptions drawn_by(std::vector<double> weights) {
  return {.batch_size = 64,
          .shuffle = true,
          .seed = 3,
          .weights = std::make_shared<const std::vector<double>>(std::move(weights))};
}

TEST(LoaderWeights, DrawSamplesInProportion) {
  const auto data = synthetic(kSpec, 4000);
  std::vector<double> weights;
  for (std::int64_t i = 0; i < data->size(); ++i) weights.push_back(static_cast<double>(i % 4));
  Loader loader(*data, drawn_by(weights));
  for (const std::int64_t epoch : {0, 1}) {
    const auto order = epoch_order(loader, epoch);
    ASSERT_EQ(order.size(), 4000u);
    std::array<double, 4> drawn{};
    for (const std::int64_t sample : order) ++drawn[static_cast<std::size_t>(sample % 4)];
    EXPECT_EQ(drawn[0], 0) << "a sample without weight is never drawn";
    for (const double share : {1, 2, 3}) {  // within five deviations of a binomial distribution
      const double mean = 4000 * share / 6;
      EXPECT_NEAR(drawn[static_cast<std::size_t>(share)], mean, 5 * std::sqrt(mean * (1 - share / 6)));
    }
    const std::set<std::int64_t> others(order.begin(), order.end());
    EXPECT_LT(others.size(), 2500u) << "drawn with replacement";
    EXPECT_GT(others.size(), 1500u) << "from all of the set";
  }
}

TEST(LoaderWeights, OrderIsAFunctionOfSeedAndEpochForAnyWorkersAndRanks) {
  const test::MadeUpSet data(50);
  std::vector<double> weights(50, 1);
  weights[7] = 20;
  LoaderOptions options = drawn_by(weights);
  options.batch_size = 8;
  options.workers = 0;
  Loader alone(data, options);
  const auto first = epoch_order(alone, 0), second = epoch_order(alone, 1);
  EXPECT_NE(first, second);
  for (const int workers : {2, 5}) {
    options.workers = workers;
    Loader other(data, options);
    EXPECT_EQ(epoch_order(other, 1), second);
  }
  std::vector<std::int64_t> of_ranks;
  for (const int rank : {0, 1, 2}) {
    options.rank = rank;
    options.world_size = 3;
    Loader part(data, options);
    const auto mine = epoch_order(part, 1);
    of_ranks.insert(of_ranks.end(), mine.begin(), mine.end());
  }
  EXPECT_EQ(sorted(of_ranks), sorted(second));
  options.rank = 0;
  options.world_size = 1;
  Loader resumed(data, options);
  EXPECT_EQ(test::samples_of(test::steps_of(resumed, 1, 16)),
            std::vector<std::int64_t>(second.begin() + 16, second.end()));
  options.seed = 4;
  Loader another(data, options);
  EXPECT_NE(epoch_order(another, 1), second);
}

TEST(LoaderWeights, AreChecked) {
  const auto data = synthetic(kSpec, 3);
  const auto refused = [&](std::vector<double> weights, bool shuffle = true, Order order = Order::random) {
    LoaderOptions options = drawn_by(std::move(weights));
    options.shuffle = shuffle;
    options.order = order;
    return test::message_of([&] { Loader(*data, options); });
  };
  EXPECT_TRUE(test::names(refused({1, 1}), {"loader", "3", "2"}));
  EXPECT_TRUE(test::names(refused({1, -1, 1}), {"sample 1", "-1"}));
  EXPECT_TRUE(test::names(refused({1, 1, std::nan("")}), {"sample 2", "nan"}));
  EXPECT_TRUE(test::names(refused({0, 0, 0}), {"sum", "0"}));
  EXPECT_TRUE(test::names(refused({1, 1, 1}, true, Order::page_random), {"pages"}));
  EXPECT_TRUE(test::names(refused({1, 1, 1}, false), {"shuffled"}));
}

// Ranks ---------------------------------------------------------------------------------------------------

// What becomes of the last, short batch when it is shared out.
TEST(LoaderRanks, MakeAsManyStepsAndReadEachSampleOnce) {
  const test::MadeUpSet data(23);
  for (const int ranks : {1, 2, 3, 4, 9, 16, 40}) {
    for (const std::int64_t batch : {4, 8, 23}) {
      SCOPED_TRACE(fmt::format("{} ranks, batches of {}", ranks, batch));
      std::vector<std::int64_t> all;
      for (int rank = 0; rank < ranks; ++rank) {
        Loader loader(data, {.batch_size = batch, .workers = rank % 3, .rank = rank, .world_size = ranks});
        EXPECT_EQ(loader.batches_per_epoch(), (23 + batch - 1) / batch);
        for (int pass = 0; pass < 2; ++pass) {  // a validation, and another one
          const auto steps = test::steps_of(loader, 0);
          ASSERT_EQ(std::ssize(steps), loader.batches_per_epoch());
          for (const test::LoadedBatch& step : steps) {
            EXPECT_LE(std::ssize(step.samples), batch / ranks + 1);
          }
          if (pass == 0) continue;
          const auto part = test::samples_of(steps);
          all.insert(all.end(), part.begin(), part.end());
        }
      }
      std::vector<std::int64_t> once(23);
      std::iota(once.begin(), once.end(), 0);
      EXPECT_EQ(sorted(all), once);
    }
  }
}

TEST(LoaderRanks, AnEmptyBatchIsABatch) {
  const test::MadeUpSet data(5);
  Loader loader(data, {.batch_size = 4, .workers = 1, .rank = 1, .world_size = 2});
  const Preprocess preprocess(data.spec(), {{0, 0, 0}, {1, 1, 1}}, DType::f32, kCpu);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(preprocess(batch, 0, true).shape(), (Shape{2, 3, 5, 3}));
  ASSERT_TRUE(loader.next(batch));  // one sample is left, and the other rank's
  EXPECT_EQ(batch.size(), 0);
  EXPECT_EQ(batch.images.shape(), (Shape{0, 3, 5, 3}));
  EXPECT_EQ(preprocess(batch, 0, true).shape(), (Shape{0, 3, 5, 3}));
  EXPECT_FALSE(loader.next(batch));
}

TEST(Loader, OnTheDeviceABatchIsRowsOfAllImages) {
  const auto data = synthetic(kSpec, 23);
  const Preprocess preprocess(kSpec, measure(*data), DType::f32, kCpu, {.pad = 1, .flip = true}, 3);
  const LoaderOptions options{.batch_size = 8, .shuffle = true, .training = true};
  LoaderOptions resident_options = options;
  resident_options.data_on_device = true;
  Loader usual(*data, options), resident(*data, resident_options);
  for (const std::int64_t epoch : {0, 1}) {
    usual.start_epoch(epoch);
    resident.start_epoch(epoch);
    Batch a, b;
    while (usual.next(a)) {
      ASSERT_TRUE(resident.next(b));
      EXPECT_EQ(b.images.shape(), (Shape{23, 3, 2, 2}));
      EXPECT_EQ(a.labels.to_vector(), b.labels.to_vector());
      EXPECT_EQ(preprocess(a, epoch, true).to_vector(), preprocess(b, epoch, true).to_vector());
    }
    EXPECT_FALSE(resident.next(b));
  }
}

TEST(Loader, MeasuresPartOfALargeSet) {
  const auto data = synthetic({4, 4, 3, 5}, 1000);
  const Normalization all = measure(*data), part = measure(*data, 200);
  EXPECT_NE(all.mean, part.mean);
  for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(all.mean[c], part.mean[c], 0.02);
  EXPECT_EQ(measure(*data, 5000).mean, all.mean);
  test::MadeUpSet damaged(50);
  damaged.before = [](std::int64_t i) { i % 10 == 3 ? throw IoError("x") : void(); };
  EXPECT_THROW(measure(damaged), IoError);
  EXPECT_EQ(measure(damaged, 1000, true).mean.size(), 3u);
}

// Memory ---------------------------------------------------------------------------------------------------

TEST(LoaderMemory, IsWhatTheHeaderSays) {
  const test::MadeUpSet data(100, {16, 16, 3, 10});
  for (const int prefetch : {1, 2, 5}) {
    const auto before = allocator_of(kCpu).stats().by_tag["data"];
    const LoaderOptions options{.batch_size = 32, .workers = 2, .prefetch = prefetch, .world_size = 2};
    Loader loader(data, options);
    EXPECT_EQ(loader.memory_bytes(), prefetch * 16 * (16 * 16 * 3 + 16));
    const auto slots = allocator_of(kCpu).stats().by_tag["data"] - before;
    EXPECT_GE(slots, loader.memory_bytes());
    EXPECT_LE(slots, loader.memory_bytes() * 9 / 8) << "size classes of small blocks";
    for (const std::int64_t epoch : {0, 1, 2}) test::steps_of(loader, epoch);
    EXPECT_EQ(allocator_of(kCpu).stats().by_tag["data"] - before, slots);
  }
}

TEST(LoaderMemory, AWarmStepAllocatesNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers allocate on their own, and the pool is off under them";
#endif
  for (const int workers : {0, 2}) {
    for (const bool shuffle : {false, true}) {
      SCOPED_TRACE(fmt::format("{} workers, shuffle {}", workers, shuffle));
      const test::MadeUpSet data(2000);
      Loader loader(data, {.batch_size = 4, .shuffle = shuffle, .training = true, .workers = workers});
      Batch batch;
      // On a busy machine one worker may read whole epochs before the other one's first sample, of which the
      // data set takes note.
      std::int64_t epoch = 0;
      for (; epoch < 2 || data.threads() < static_cast<std::size_t>(workers); ++epoch) {
        loader.start_epoch(epoch);
        while (loader.next(batch)) continue;
      }
      loader.start_epoch(epoch);
      for (int i = 0; i < 10; ++i) loader.next(batch);
      const std::int64_t news = test::operator_news();
      while (loader.next(batch)) continue;
      // 490 steps; the next epoch's order is a few allocations.
      EXPECT_LE(test::operator_news() - news, shuffle && workers > 0 ? 3 : 0);
    }
  }
}

// Pages ----------------------------------------------------------------------------------------------------

TEST(LoaderPages, EverySampleOnceAndFewPagesAtATime) {
  for (const std::int64_t size : {1, 7, 64, 100, 1003}) {
    const test::MadeUpSet data(size);
    const LoaderOptions options{.batch_size = 8,
                                .shuffle = true,
                                .seed = 2,
                                .workers = 2,
                                .order = Order::page_random,
                                .page_samples = 10,
                                .window_pages = 3};
    Loader loader(data, options);
    const auto first = test::samples_of(test::steps_of(loader, 0));
    const auto second = test::samples_of(test::steps_of(loader, 1));
    std::vector<std::int64_t> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted(first), all);
    EXPECT_EQ(sorted(second), all);
    if (size >= 64) {
      EXPECT_NE(first, second);
      EXPECT_NE(first, all);
    }
    // Whatever is read next to each other is of few pages: those of two windows at most.
    for (std::size_t i = 0; i + 20 <= first.size(); ++i) {
      std::set<std::int64_t> pages;
      for (std::size_t k = i; k < i + 20; ++k) pages.insert(first[k] / 10);
      EXPECT_LE(pages.size(), 6u);
    }
    LoaderOptions inline_options = options;
    inline_options.workers = 0;
    Loader same(data, inline_options);
    EXPECT_EQ(test::samples_of(test::steps_of(same, 1)), second) << "a function of (seed, epoch)";
  }
}

TEST(LoaderPages, AreAnnouncedBeforeTheyAreRead) {
  for (const bool shuffle : {true, false}) {
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(fmt::format("shuffle {}, rank {}", shuffle, rank));
      test::MadeUpSet data(203);
      std::vector<bool> announced(203);
      std::int64_t early = 0, calls = 0;
      data.on_will_need = [&](std::int64_t first, std::int64_t count) {
        ++calls;
        ASSERT_TRUE(first >= 0 && count > 0 && first + count <= 203);
        for (std::int64_t i = first; i < first + count; ++i) announced[static_cast<std::size_t>(i)] = true;
      };
      data.before = [&](std::int64_t index) { early += announced[static_cast<std::size_t>(index)] ? 1 : 0; };
      Loader loader(data, {.batch_size = 16,
                           .shuffle = shuffle,
                           .workers = 0,
                           .order = Order::page_random,
                           .page_samples = 10,
                           .window_pages = 2,
                           .rank = rank,
                           .world_size = 2});
      const auto read = std::ssize(test::samples_of(test::steps_of(loader, 0, 32)));
      EXPECT_EQ(early, read);
      EXPECT_LE(calls, 24) << "21 pages, and the first window of the next epoch";
    }
  }
}

TEST(Loader, ExplainsWhatImagesOfSeveralSizesNeed) {
  test::MadeUpSet data(3, {0, 0, 0, 2});
  EXPECT_ERROR(ArgumentError, Loader(data, {.workers = 0}), "loader", "DecodedDataset");
}

TEST(LoaderPages, AdviceThatCannotBeTakenIsNoError) {
  test::MadeUpSet data(50);
  data.on_will_need = [](std::int64_t, std::int64_t) { throw std::runtime_error("busy"); };
  for (const int workers : {0, 2}) {
    Loader loader(data, {.batch_size = 8,
                         .shuffle = true,
                         .workers = workers,
                         .order = Order::page_random,
                         .page_samples = 10,
                         .window_pages = 2});
    EXPECT_EQ(std::ssize(test::samples_of(test::steps_of(loader, 0))), 50);
  }
}

}  // namespace athanor::loader_test
