#include "data/loader.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "data/in_memory.h"
#include "data/synthetic.h"
#include "tensor/error.h"

namespace athanor {
namespace {

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

TEST(Loader, GoesOnInTheMiddleOfAnEpochAsIfItHadNeverLeft) {
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

/// Counts how often each sample is decoded.
class Counting final : public Dataset {
 public:
  std::int64_t size() const override { return 10; }
  const ImageSpec& spec() const override { return kSpec; }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    ++reads;
    std::fill(pixels.begin(), pixels.end(), static_cast<std::uint8_t>(index));
    return index % 5;
  }
  mutable int reads = 0;
};

TEST(Loader, DecodesEachSampleOnceForAllEpochs) {
  const Counting data;
  Loader loader(data, {.batch_size = 3, .shuffle = true});
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) epoch_order(loader, epoch);
  EXPECT_EQ(data.reads, 10);
}

TEST(Loader, RefusesNothingToLoad) {
  const auto none = synthetic(kSpec, 0), some = synthetic(kSpec, 3);
  EXPECT_THROW(Loader(*none, {}), ArgumentError);
  EXPECT_THROW(Loader(*some, {.batch_size = 0}), ArgumentError);
}

}  // namespace
}  // namespace athanor
