#include <memory>

#include "data/pixel_stage.h"
#include "data/preprocess.h"
#include "kernels/resize.h"
#include "tensor/pinned.h"
#include "tests/cuda/mixed_files.h"

// Loaders that leave the scaling of images to a device have the batches of those that scale on the CPU.

namespace athanor::resize_loader_test {

using LoaderResizeOnDevice = test::DeviceTest;

TEST_F(LoaderResizeOnDevice, LoadersHaveTheBatchesOfTheCpu) {
  const DecodedDataset data(std::make_shared<test::MixedFiles>(45), test::kDrawn, test::kMiddle, 5);
  for (const bool training : {true, false}) {
    for (const int workers : {0, 3}) {
      for (const int prefetch : {1, 3}) {
        SCOPED_TRACE(fmt::format("training {}, {} workers, {} slots", training, workers, prefetch));
        const LoaderOptions options{.batch_size = 7,
                                    .shuffle = training,
                                    .training = training,
                                    .workers = workers,
                                    .prefetch = prefetch};
        Loader reference(data, options);
        Loader loader(data, test::for_device(options));
        EXPECT_GT(loader.memory_bytes(), Loader(data, test::for_device(options, false)).memory_bytes());
        for (const std::int64_t epoch : {0, 1, 4}) {
          const std::int64_t delivered = epoch == 4 ? 14 : 0;
          EXPECT_EQ(test::read_all(loader, epoch, delivered), test::steps_of(reference, epoch, delivered));
        }
      }
    }
  }
}

// Positions change while copies and kernels are queued.
TEST_F(LoaderResizeOnDevice, SeeksWhileImagesAreOnTheirWay) {
  const DecodedDataset data(std::make_shared<test::MixedFiles>(40), test::kDrawn, test::kMiddle, 5);
  const LoaderOptions options{.batch_size = 4, .shuffle = true, .training = true, .workers = 2};
  Loader reference(data, options), loader(data, test::for_device(options));
  for (std::int64_t round = 0; round < 12; ++round) {
    const std::int64_t epoch = round * 5 % 7, delivered = round % 3 * 8;
    Batch batch;
    loader.start_epoch(epoch, delivered);
    ASSERT_TRUE(loader.next(batch));
    const test::LoadedBatch step =
        test::copy_of({batch.images.to(kCpu), batch.labels.to(kCpu), batch.samples.to(kCpu), {}});
    EXPECT_EQ(step, test::steps_of(reference, epoch, delivered)[0]) << round;
  }
}

// Images that find no room, or have too many taps, are scaled by the threads; both kinds are in a batch.
TEST_F(LoaderResizeOnDevice, ThreadsScaleWhatIsTooLarge) {
  constexpr ImageTransform kSmall{.height = 3, .width = 3, .shorter_side = 3};
  const DecodedDataset data(std::make_shared<test::MixedFiles>(40), kSmall);
  const LoaderOptions options{.batch_size = 20, .workers = 2, .prefetch = 2};
  Loader reference(data, options), loader(data, test::for_device(options));
  for (const std::int64_t epoch : {0, 1, 2})
    EXPECT_EQ(test::read_all(loader, epoch), test::steps_of(reference, epoch));
  const Loader host(data, test::for_device(options, false));
  const std::int64_t staged = loader.memory_bytes() - host.memory_bytes();
  const std::int64_t bound = 2 * (PixelStage::kMost * 20 * 64 + 20 * (sizeof(kernels::StagedImage) + 64));
  EXPECT_LE(staged, bound);
}

// Fields move with the image, whose scaling the device does.
TEST_F(LoaderResizeOnDevice, NetworksGetTheSameInput) {
  const DecodedDataset data(std::make_shared<test::MixedFiles>(30), test::kDrawn, test::kMiddle, 5);
  const Normalization pixels{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}};
  const Augment augment{.flip = true, .cutout = 3};
  const Preprocess host(data.spec(), pixels, DType::f32, kCpu, augment, 3),
      device(data.spec(), pixels, DType::f32, test::device(), augment, 3);
  const LoaderOptions options{.batch_size = 8, .shuffle = true, .training = true, .workers = 2};
  Loader on_host(data, options), there(data, test::for_device(options));
  Batch a, b;
  while (on_host.next(a)) {
    ASSERT_TRUE(there.next(b));
    EXPECT_TRUE(test::same_bits(device(b, 0, true).to(kCpu), host(a, 0, true)));
  }
}

TEST_F(LoaderResizeOnDevice, BadSamplesAreReplacedAsOnTheCpu) {
  const auto files = std::make_shared<test::MixedFiles>(40);
  files->damage(9);
  files->damage(24);
  const DecodedDataset data(files, test::kDrawn, test::kMiddle, 5);
  LoaderOptions options{.batch_size = 8, .shuffle = true, .training = true, .workers = 1};
  options.bad_samples = {.skip = true, .limit = 10};
  Loader reference(data, options), loader(data, test::for_device(options));
  EXPECT_EQ(test::read_all(loader, 0), test::steps_of(reference, 0));
  EXPECT_EQ(loader.stats().skipped, 2);
  EXPECT_EQ(loader.stats().first_skipped, reference.stats().first_skipped);
}

/// Raw images of many sizes, all from one memory.
class ManySizes final : public Dataset {
 public:
  std::int64_t size() const override { return 64; }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    const std::int64_t height = 2 + index % 13, width = 3 + index * 7 % 11;
    scratch.resize(static_cast<std::size_t>(height * width), std::byte{9});
    return {scratch, Codec::raw, height, width, 1, index % 10};
  }

 private:
  ImageSpec spec_{0, 0, 1, 10};
};

// Sizes differ from batch to batch; what is held is what the first epochs have made.
TEST_F(LoaderResizeOnDevice, MemoryStaysTheSameOverManyBatches) {
  constexpr ImageTransform kTraining{.height = 4, .width = 4, .random_crop = RandomResizedCrop{}};
  constexpr ImageTransform kTesting{.height = 4, .width = 4};
  const DecodedDataset data(std::make_shared<ManySizes>(), kTraining, kTesting, 2);
  const std::int64_t batches = !cuda_is_emulated() ? 100'000 : test::kChecksEveryAccess ? 600 : 6'000;
  Loader loader(data, test::for_device({.batch_size = 4, .shuffle = true, .training = true, .workers = 1}));
  Batch batch;
  AllocatorStats warm;
  PinnedStats pinned_warm;
  std::int64_t count = 0, bytes = 0;
  for (std::int64_t epoch = 0; count < batches; ++epoch) {
    loader.start_epoch(epoch);
    for (; loader.next(batch); ++count) bytes += batch.images.numel();
    synchronize(test::device());
    if (epoch == 20) {
      warm = allocator_of(test::device()).stats();
      pinned_warm = pinned_stats();
    }
  }
  EXPECT_EQ(bytes, count * 4 * 16);
  const AllocatorStats now = allocator_of(test::device()).stats();
  EXPECT_EQ(now.current, warm.current);
  EXPECT_EQ(now.cached, warm.cached);
  EXPECT_EQ(now.growths, warm.growths);
  EXPECT_EQ(pinned_stats().current, pinned_warm.current);
  EXPECT_EQ(pinned_stats().growths, pinned_warm.growths);
}

}  // namespace athanor::resize_loader_test
