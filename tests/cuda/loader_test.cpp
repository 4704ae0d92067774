#include "data/loader.h"

#include <chrono>
#include <memory>
#include <thread>

#include <cuda_runtime.h>

#include "data/in_memory.h"
#include "data/preprocess.h"
#include "data/synthetic.h"
#include "tensor/pinned.h"
#include "tests/cuda/device.h"
#include "tests/support/loader_steps.h"
#include "tests/support/made_up_set.h"

// Streams run late here, and in three orders: a batch that was written over too early, or read before it was
// there, is another one.

namespace athanor::loader_test {

using LoaderOnDevice = test::DeviceTest;

LoaderOptions here(LoaderOptions options) {
  options.device = test::device();
  return options;
}

/// Copies of batches, made on the device without ever waiting for it.
class Diary {
 public:
  void add(const Batch& batch) {
    const auto copy = [](const Tensor& from) {
      const Tensor to = empty_like(from);
      to.copy_bytes_from(from);
      return to;
    };
    batches_.push_back({copy(batch.images), copy(batch.labels), copy(batch.samples), {}});
  }
  std::vector<test::LoadedBatch> read() const {
    std::vector<test::LoadedBatch> steps;
    for (const Batch& batch : batches_) {
      steps.push_back(
          test::copy_of({batch.images.to(kCpu), batch.labels.to(kCpu), batch.samples.to(kCpu), {}}));
    }
    return steps;
  }

 private:
  std::vector<Batch> batches_;
};

TEST_F(LoaderOnDevice, BatchesEqualTheCpuWithoutWaits) {
  test::MadeUpSet slow(53);
  slow.before = test::take_a_while;
  for (const int prefetch : {1, 2, 4}) {
    for (const int workers : {0, 1, 3}) {
      for (const bool pinned : {true, false}) {
        SCOPED_TRACE(fmt::format("{} slots, {} workers, pinned {}", prefetch, workers, pinned));
        LoaderOptions options{
            .batch_size = 8, .shuffle = true, .training = true, .workers = workers, .prefetch = prefetch};
        Loader reference(slow, options);
        options = here(options);
        options.pin_memory = pinned;
        Loader loader(slow, options);
        for (const std::int64_t epoch : {0, 1, 3}) {
          Diary diary;
          Batch batch;
          {
            const ForbidSync never;
            loader.start_epoch(epoch, epoch == 3 ? 16 : 0);
            while (loader.next(batch)) {
              ASSERT_EQ(batch.images.device(), test::device());
              diary.add(batch);
            }
          }
          EXPECT_EQ(diary.read(), test::steps_of(reference, epoch, epoch == 3 ? 16 : 0));
        }
      }
    }
  }
}

TEST_F(LoaderOnDevice, SlotsArePinnedAndAsLargeAsTheHeaderSays) {
  const test::MadeUpSet data(64, {16, 16, 3, 10});
  for (const bool pinned : {true, false}) {
    const std::int64_t pinned_before = pinned_stats().current;
    const auto device_before = allocator_of(test::device()).stats().by_tag["data"];
    Loader loader(data, here({.batch_size = 16, .workers = 2, .prefetch = 3, .pin_memory = pinned}));
    EXPECT_EQ(loader.memory_bytes(), 3 * 16 * (16 * 16 * 3 + 16));
    EXPECT_EQ(pinned_stats().current - pinned_before, pinned ? loader.memory_bytes() : 0);
    const auto there = allocator_of(test::device()).stats().by_tag["data"] - device_before;
    EXPECT_GE(there, loader.memory_bytes());
    EXPECT_LE(there, loader.memory_bytes() + 3 * 512);
  }
}

// A hundred thousand batches: what is held is what was made at the beginning.
TEST_F(LoaderOnDevice, MemoryStaysTheSameOverManyBatches) {
  const auto data = synthetic({4, 4, 1, 3}, 40);
  const Tensor sink = Tensor::empty({4, 4, 4, 1}, {DType::u8, test::device()});
  const std::int64_t batches = cuda_is_emulated() ? 100'000 : 20'000;
  for (const int workers : {0, 2}) {
    const std::int64_t pinned_before = pinned_stats().current;
    Loader loader(*data, here({.batch_size = 4, .shuffle = true, .workers = workers}));
    Batch batch;
    AllocatorStats warm;
    PinnedStats pinned_warm;
    std::int64_t count = 0;
    for (std::int64_t epoch = 0; count < (workers > 0 ? batches / 10 : batches); ++epoch) {
      loader.start_epoch(epoch);
      for (; loader.next(batch); ++count) sink.copy_bytes_from(batch.images);
      if (epoch == 10) {
        warm = allocator_of(test::device()).stats();
        pinned_warm = pinned_stats();
      }
    }
    const AllocatorStats now = allocator_of(test::device()).stats();
    EXPECT_EQ(now.current, warm.current);
    EXPECT_EQ(now.growths, warm.growths);
    EXPECT_EQ(pinned_stats().current, pinned_warm.current);
    EXPECT_EQ(pinned_stats().growths, pinned_warm.growths);
    EXPECT_EQ(pinned_stats().current - pinned_before, loader.memory_bytes());
    EXPECT_EQ(loader.memory_bytes(), 4 * 4 * (16 + 16));
  }
}

TEST_F(LoaderOnDevice, AResidentDataSetIsReadByRows) {
  const auto data = synthetic({6, 5, 3, 4}, 50);
  const Augment augment{.pad = 2, .flip = true, .cutout = 2};
  const Normalization pixels = measure(*data);
  const Preprocess host(data->spec(), pixels, DType::f32, kCpu, augment, 3);
  const Preprocess device(data->spec(), pixels, DType::f32, test::device(), augment, 3);
  LoaderOptions options{.batch_size = 8, .shuffle = true, .training = true};
  Loader usual(*data, options);
  options = here(options);
  options.data_on_device = true;
  Loader kept(*data, options);
  EXPECT_EQ(kept.memory_bytes(), 4 * 8 * 16) << "only labels and indices travel";
  Batch a, b;
  for (const std::int64_t epoch : {0, 1}) {
    usual.start_epoch(epoch);
    kept.start_epoch(epoch);
    while (usual.next(a)) {
      ASSERT_TRUE(kept.next(b));
      EXPECT_EQ(b.images.shape(), (Shape{50, 6, 5, 3}));
      EXPECT_EQ(host(a, epoch, true).to_vector(), device(b, epoch, true).to_vector());
      EXPECT_EQ(a.labels.to_vector(), b.labels.to_vector());
    }
    EXPECT_FALSE(kept.next(b));
  }
}

/// Pictures with a field of every kind, all a function of the index.
struct AllKinds final : FieldDataset {
  AllKinds()
      : FieldDataset({6, 5, 3, 0}, {{"clean", DType::u8, {6, 5, 1}, FieldKind::target},
                                    {"mask", DType::u8, {6, 5}, FieldKind::mask},
                                    {"noisy", DType::u8, {6, 5, 3}, FieldKind::picture},
                                    {"box", DType::f32, {2, 4}, FieldKind::boxes},
                                    {"point", DType::f32, {3, 2}, FieldKind::points},
                                    {"number", DType::i64}}) {}
  std::int64_t size() const override { return 50; }
  bool resident() const override { return true; }
  void read_fields(std::int64_t index, std::int64_t, SampleRow& row) const override {
    const auto byte = [&](std::uint64_t i) {
      return static_cast<std::uint8_t>(philox_word({1, static_cast<std::uint64_t>(index)}, i));
    };
    std::uint64_t next = 0;
    for (const char* name : {"image", "clean", "mask", "noisy"}) {
      for (std::uint8_t& to : row.get<std::uint8_t>(name)) to = byte(next++);
    }
    for (const char* name : {"box", "point"}) {
      for (float& to : row.get<float>(name)) to = static_cast<float>(byte(next++) % 8);
    }
    row.get<std::int64_t>("number")[0] = index;
  }
};

TEST_F(LoaderOnDevice, FieldsAndViewsAreThoseOfTheCpu) {
  const AllKinds data;
  for (const bool kept : {false, true}) {
    for (const Augment& augment : {Augment{.pad = 2, .flip = true, .cutout = 2},
                                   Augment{.flip = true, .resized_crop = RandomResizedCrop{}}}) {
      LoaderOptions options{.batch_size = 8, .shuffle = true, .training = true, .workers = 2};
      const Normalization pixels{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}};
      const Preprocess host(data.spec(), pixels, DType::f32, kCpu, augment, 3, 2);
      const Preprocess device(data.spec(), pixels, DType::f32, test::device(), augment, 3, 2);
      Loader on_host(data, options);
      options = here(options);
      options.data_on_device = kept;
      Loader on_device(data, options);
      Batch a, b;
      for (int step = 0; on_host.next(a); ++step) {
        ASSERT_TRUE(on_device.next(b));
        const Batch x = host.prepare(a, 0, true), y = device.prepare(b, 0, true);
        EXPECT_EQ(y.size(), x.size());
        for (const char* name : {"image", "clean", "mask", "noisy", "box", "point", "number"}) {
          EXPECT_TRUE(test::same_bits(y.all_views(name).to(kCpu), x.all_views(name))) << name << " " << step;
        }
      }
    }
  }
}

// The slots go back while copies into and out of them are still in the queue, and to the next loader.
TEST_F(LoaderOnDevice, MayEndWithCopiesInTheQueue) {
  const test::MadeUpSet data(64);
  const LoaderOptions options = here({.batch_size = 8, .shuffle = true, .training = true, .workers = 2});
  LoaderOptions on_cpu = options;
  on_cpu.device = kCpu;
  Loader reference(data, on_cpu);
  std::vector<test::LoadedBatch> expected;
  Diary diary;
  for (std::int64_t round = 0; round < 12; ++round) {
    const auto loader = std::make_unique<Loader>(data, options);
    Batch batch;
    loader->start_epoch(round, 8 * (round % 3));
    const auto whole = test::steps_of(reference, round, 8 * (round % 3));
    for (std::size_t i = 0; i < static_cast<std::size_t>(round % 4); ++i) {
      loader->next(batch);
      diary.add(batch);
      expected.push_back(whole[i]);
    }
  }
  EXPECT_EQ(diary.read(), expected);
}

// Rows of the new position are read into host slots that queued copies of earlier batches still read.
TEST_F(LoaderOnDevice, KeepsABatchWhoseCopyIsInTheQueueWhenItSeeks) {
  const test::MadeUpSet data(24);
  const LoaderOptions options{
      .batch_size = 8, .shuffle = true, .training = true, .workers = 1, .prefetch = 1};
  Loader reference(data, options), loader(data, here(options));
  Diary diary;
  Batch batch;
  loader.start_epoch(0);
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(loader.next(batch));
    diary.add(batch);
  }
  std::chrono::milliseconds late{100};
  const auto sleep = [](void* ms) {
    std::this_thread::sleep_for(*static_cast<std::chrono::milliseconds*>(ms));
  };
  const auto native = static_cast<cudaStream_t>(current_stream(test::device()).native());
  ASSERT_EQ(cudaLaunchHostFunc(native, sleep, &late), cudaSuccess);
  ASSERT_TRUE(loader.next(batch));
  diary.add(batch);
  loader.start_epoch(7);
  ASSERT_TRUE(loader.next(batch));
  diary.add(batch);
  auto expected = test::steps_of(reference, 0);
  expected.push_back(test::steps_of(reference, 7).front());
  EXPECT_EQ(diary.read(), expected);
}

TEST_F(LoaderOnDevice, ErrorsComeAtTheirStep) {
  test::MadeUpSet data(40);
  data.before = [](std::int64_t index) {
    if (index == 21) throw IoError("made-up: gone");
  };
  for (const int workers : {0, 2}) {
    Loader loader(data, here({.batch_size = 4, .workers = workers}));
    Diary diary;
    Batch batch;
    for (int step = 0; step < 5; ++step) {
      ASSERT_TRUE(loader.next(batch));
      diary.add(batch);
      // Slots ahead are read, and sent; what is wrong with them must not go with them.
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      synchronize(test::device());
    }
    EXPECT_THROW(loader.next(batch), IoError);
    EXPECT_THROW(loader.next(batch), IoError);
    const auto steps = diary.read();
    for (std::size_t step = 0; step < 5; ++step) {
      EXPECT_EQ(steps[step].samples[0], 4 * static_cast<std::int64_t>(step));
    }
  }
}

}  // namespace athanor::loader_test
