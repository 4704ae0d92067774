#include "data/image/resize.h"

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "data/decoded_dataset.h"
#include "data/device_jpeg.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "kernels/on_device.h"
#include "kernels/resize_ops.h"
#include "tensor/cuda/runtime.h"
#include "tensor/pinned.h"
#include "tests/cuda/device.h"
#include "tests/support/image_files.h"
#include "tests/support/loader_steps.h"
#include "tests/support/says.h"

// Images scaled on the device are those of the CPU, to the bit: by the kernel, and by a loader that leaves
// them to it.

namespace athanor {
namespace {

using kernels::StagedImage;
using ResizeOnDevice = test::DeviceTest;

Window whole(std::int64_t from, std::int64_t to) {
  return {static_cast<double>(from) / static_cast<double>(to), 0, 0, from};
}

/// Pixels [from, from + length) of a side, scaled to `to`, and shifted by part of a pixel.
Window part(std::int64_t from, std::int64_t length, std::int64_t to, double shift = 0) {
  return {static_cast<double>(length) / static_cast<double>(to), static_cast<double>(from) + shift, from,
          from + length};
}

/// Images of different sizes in one memory, as a PixelStage holds them.
struct Staged {
  std::vector<StagedImage> images;
  std::vector<std::uint8_t> pixels;

  void add(std::int64_t height, std::int64_t width, std::int64_t channels, const Window& rows,
           const Window& columns, const Orientation& turned = {}) {
    images.push_back({.at = std::ssize(pixels),
                      .height = static_cast<std::int32_t>(height),
                      .width = static_cast<std::int32_t>(width),
                      .channels = static_cast<std::int16_t>(channels),
                      .transposed = turned.transposed,
                      .rows_flipped = turned.rows_flipped,
                      .columns_flipped = turned.columns_flipped,
                      .rows = rows,
                      .columns = columns});
    for (std::int64_t i = 0; i < height * width * channels; ++i) {
      const std::uint32_t word = philox_word({images.size(), 3}, static_cast<std::uint64_t>(i));
      pixels.push_back(static_cast<std::uint8_t>(word % 4 == 0 ? 255 * (word >> 31) : word >> 8));
    }
  }
  Tensor described() const {
    std::vector<std::uint8_t> bytes(images.size() * sizeof(StagedImage));
    std::memcpy(bytes.data(), images.data(), bytes.size());
    return Tensor::from(bytes, {std::ssize(bytes)});
  }
  /// y [N, height, width, channels] of a device.
  Tensor scaled(Device device, std::int64_t height, std::int64_t width, std::int64_t channels) const {
    const Shape shape{std::ssize(images), height, width, channels};
    const std::vector<std::uint8_t> before(static_cast<std::size_t>(shape.numel()), 7);
    const Tensor y = Tensor::from(before, shape).to(device);
    const Tensor from = Tensor::from(pixels, {std::ssize(pixels)}).to(device), of = described().to(device);
    on_device(device, [&](auto& context) { kernels::resize_images(context, of, from, y); });
    return y.to(kCpu);
  }
  /// The same, by the loader threads' code.
  std::vector<std::uint8_t> by_resizer(std::size_t n, std::int64_t height, std::int64_t width,
                                       std::int64_t channels) const {
    const StagedImage& image = images[n];
    const Orientation turned{image.transposed != 0, image.rows_flipped != 0, image.columns_flipped != 0};
    const ImageSize stored = turned.turned({height, width});
    std::vector<std::uint8_t> narrow(static_cast<std::size_t>(height * width * image.channels)), upright, out;
    upright.resize(narrow.size());
    Resizer resize;
    resize({pixels.data() + image.at, image.height, image.width, image.channels,
            std::int64_t{image.width} * image.channels},
           image.rows, image.columns, stored.height, stored.width, narrow);
    turn({narrow.data(), stored.height, stored.width, image.channels, stored.width * image.channels}, turned,
         upright.data());
    if (image.channels == channels) return upright;
    for (const std::uint8_t byte : upright) out.insert(out.end(), static_cast<std::size_t>(channels), byte);
    return out;
  }
};

void expect_same_bits(const Staged& staged, std::int64_t height, std::int64_t width, std::int64_t channels) {
  SCOPED_TRACE(fmt::format("to {}x{}x{}", height, width, channels));
  const Tensor y = staged.scaled(kCpu, height, width, channels);
  EXPECT_TRUE(test::same_bits(staged.scaled(test::device(), height, width, channels), y));
  const auto each = static_cast<std::size_t>(height * width * channels);
  for (std::size_t n = 0; n < staged.images.size(); ++n) {
    const std::uint8_t* from = y.data<std::uint8_t>() + n * each;
    EXPECT_EQ(std::vector(from, from + each), staged.by_resizer(n, height, width, channels)) << n;
  }
}

TEST_F(ResizeOnDevice, HasTheBitsOfTheCpu) {
  const ImageSize results[] = {{1, 1}, {5, 3}, {16, 32}, {17, 33}, {40, 70}};
  const ImageSize sources[] = {{1, 1}, {1, 9}, {7, 1}, {2, 2}, {13, 17}, {64, 48}, {90, 31}};
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    for (const ImageSize& to : results) {
      Staged staged;
      for (const ImageSize& from : sources) {
        staged.add(from.height, from.width, channels, whole(from.height, to.height),
                   whole(from.width, to.width));
        const std::int64_t top = from.height / 4, left = from.width / 3;
        staged.add(from.height, from.width, channels, part(top, from.height - top, to.height),
                   part(left, from.width - left, to.width));
        staged.add(from.height, from.width, channels, part(top, from.height - top, to.height, 0.3),
                   part(left, from.width - left, to.width, 0.1));
      }
      expect_same_bits(staged, to.height, to.width, channels);
    }
  }
}

// As many taps as there may be, and weights of a sample that lie beyond its window.
TEST_F(ResizeOnDevice, ShrinksSixtyFourTimes) {
  Staged staged;
  staged.add(64 * 3, 64 * 5, 3, whole(64 * 3, 3), whole(64 * 5, 5));
  staged.add(150, 300, 3, whole(150, 3), whole(300, 5));
  staged.add(150, 300, 1, whole(150, 3), whole(300, 5));
  for (const StagedImage& image : staged.images)
    EXPECT_LE(std::max(kernels::taps_of(image.rows), kernels::taps_of(image.columns)), kernels::kManyTaps);
  EXPECT_EQ(kernels::taps_of(staged.images[0].rows), kernels::kManyTaps);
  expect_same_bits(staged, 3, 5, 3);
}

// Grey images beside those in colour, and all eight orientations, of a result that is not square.
TEST_F(ResizeOnDevice, WidensGreyAndTurnsUpright) {
  Staged staged;
  for (int turned = 0; turned < 8; ++turned) {
    const Orientation way{(turned & 1) != 0, (turned & 2) != 0, (turned & 4) != 0};
    const ImageSize to = way.turned({21, 45});
    for (const std::int64_t channels : {1, 3})
      staged.add(30 + turned, 23, channels, whole(30 + turned, to.height), whole(23, to.width), way);
  }
  expect_same_bits(staged, 21, 45, 3);
}

TEST_F(ResizeOnDevice, LeavesCompleteRowsAlone) {
  Staged staged;
  staged.add(9, 8, 3, whole(9, 4), whole(8, 6));
  staged.images.insert(staged.images.begin(), StagedImage{});
  staged.images.push_back({});
  const Tensor y = staged.scaled(test::device(), 4, 6, 3);
  EXPECT_TRUE(test::same_bits(y, staged.scaled(kCpu, 4, 6, 3)));
  for (const std::int64_t row : {0, 2}) {
    for (std::int64_t i = 0; i < 4 * 6 * 3; ++i) ASSERT_EQ(y.data<std::uint8_t>()[row * 4 * 6 * 3 + i], 7);
  }
  EXPECT_EQ(Staged().scaled(test::device(), 4, 6, 3).numel(), 0);
}

// ----------------------------------------------------------------------------------------------------------

/// Files in memory: photos as JPEG in all orientations, PNG and raw ones, grey too, in many sizes.
class MixedFiles final : public Dataset {
 public:
  explicit MixedFiles(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const bool grey = i % 7 == 6;
      const test::Pixels image =
          test::photo(20 + 13 * (i % 8), 24 + 17 * (i % 5), grey ? 1 : 3, std::uint64_t(i));
      File file{Codec::raw, image.height, image.width, image.channels, {}};
      if (grey || i % 3 == 2) {
        file.bytes.assign(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
      } else {
        file.codec = Codec::jpeg;
        file.bytes = test::with_orientation(test::jpeg_file(image, {}), static_cast<int>(1 + i % 8));
      }
      files_.push_back(std::move(file));
    }
  }
  std::int64_t size() const override { return std::ssize(files_); }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    const File& file = files_[static_cast<std::size_t>(index)];
    return {test::bytes_of(file.bytes), file.codec, file.height, file.width, file.channels, index % 10};
  }
  std::string where(std::int64_t index) const override { return fmt::format("file {}", index); }
  void damage(std::int64_t index) { files_[static_cast<std::size_t>(index)].bytes.resize(300); }
  /// Keeps a part of the file.
  void damage(std::int64_t index, double part) {
    std::string& bytes = files_[static_cast<std::size_t>(index)].bytes;
    bytes.resize(static_cast<std::size_t>(static_cast<double>(bytes.size()) * part));
  }

 private:
  struct File {
    Codec codec;
    std::int64_t height, width, channels;
    std::string bytes;
  };
  std::vector<File> files_;
  ImageSpec spec_{0, 0, 0, 10};
};

constexpr ImageTransform kDrawn{.height = 18, .width = 20, .random_crop = RandomResizedCrop{}};
constexpr ImageTransform kMiddle{.height = 18, .width = 20, .shorter_side = 24};

LoaderOptions here(LoaderOptions options, bool resize = true) {
  options.device = test::device();
  options.resize_on_device = resize;
  return options;
}

std::vector<test::Step> read_all(Loader& loader, std::int64_t epoch, std::int64_t delivered = 0) {
  std::vector<test::Step> steps;
  Batch batch;
  loader.start_epoch(epoch, delivered);
  while (loader.next(batch))
    steps.push_back(
        test::copy_of({batch.images.to(kCpu), batch.labels.to(kCpu), batch.samples.to(kCpu), {}}));
  return steps;
}

TEST_F(ResizeOnDevice, LoadersHaveTheBatchesOfTheCpu) {
  const DecodedDataset data(std::make_shared<MixedFiles>(45), kDrawn, kMiddle, 5);
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
        Loader loader(data, here(options));
        EXPECT_GT(loader.memory_bytes(), Loader(data, here(options, false)).memory_bytes());
        for (const std::int64_t epoch : {0, 1, 4}) {
          const std::int64_t delivered = epoch == 4 ? 14 : 0;
          EXPECT_EQ(read_all(loader, epoch, delivered), test::steps_of(reference, epoch, delivered));
        }
      }
    }
  }
}

// Positions change while copies and kernels are queued.
TEST_F(ResizeOnDevice, SeeksWhileImagesAreOnTheirWay) {
  const DecodedDataset data(std::make_shared<MixedFiles>(40), kDrawn, kMiddle, 5);
  const LoaderOptions options{.batch_size = 4, .shuffle = true, .training = true, .workers = 2};
  Loader reference(data, options), loader(data, here(options));
  for (std::int64_t round = 0; round < 12; ++round) {
    const std::int64_t epoch = round * 5 % 7, delivered = round % 3 * 8;
    Batch batch;
    loader.start_epoch(epoch, delivered);
    ASSERT_TRUE(loader.next(batch));
    const test::Step step =
        test::copy_of({batch.images.to(kCpu), batch.labels.to(kCpu), batch.samples.to(kCpu), {}});
    EXPECT_EQ(step, test::steps_of(reference, epoch, delivered)[0]) << round;
  }
}

// Images that find no room, or have too many taps, are scaled by the threads; both kinds are in a batch.
TEST_F(ResizeOnDevice, ThreadsScaleWhatIsTooLarge) {
  constexpr ImageTransform kSmall{.height = 3, .width = 3, .shorter_side = 3};
  const DecodedDataset data(std::make_shared<MixedFiles>(40), kSmall);
  const LoaderOptions options{.batch_size = 20, .workers = 2, .prefetch = 2};
  Loader reference(data, options), loader(data, here(options));
  for (const std::int64_t epoch : {0, 1, 2})
    EXPECT_EQ(read_all(loader, epoch), test::steps_of(reference, epoch));
  const Loader host(data, here(options, false));
  const std::int64_t staged = loader.memory_bytes() - host.memory_bytes();
  const std::int64_t bound = 2 * (PixelStage::kMost * 20 * 64 + 20 * (sizeof(StagedImage) + 64));
  EXPECT_LE(staged, bound);
}

// Fields move with the image, whose scaling the device does.
TEST_F(ResizeOnDevice, NetworksGetTheSameInput) {
  const DecodedDataset data(std::make_shared<MixedFiles>(30), kDrawn, kMiddle, 5);
  const Normalization pixels{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}};
  const Augment augment{.flip = true, .cutout = 3};
  const Preprocess host(data.spec(), pixels, DType::f32, kCpu, augment, 3),
      device(data.spec(), pixels, DType::f32, test::device(), augment, 3);
  const LoaderOptions options{.batch_size = 8, .shuffle = true, .training = true, .workers = 2};
  Loader on_host(data, options), on_device(data, here(options));
  Batch a, b;
  while (on_host.next(a)) {
    ASSERT_TRUE(on_device.next(b));
    EXPECT_TRUE(test::same_bits(device(b, 0, true).to(kCpu), host(a, 0, true)));
  }
}

TEST_F(ResizeOnDevice, BadSamplesAreReplacedAsOnTheCpu) {
  const auto files = std::make_shared<MixedFiles>(40);
  files->damage(9);
  files->damage(24);
  const DecodedDataset data(files, kDrawn, kMiddle, 5);
  LoaderOptions options{.batch_size = 8, .shuffle = true, .training = true, .workers = 1};
  options.bad_samples = {.skip = true, .limit = 10};
  Loader reference(data, options), loader(data, here(options));
  EXPECT_EQ(read_all(loader, 0), test::steps_of(reference, 0));
  EXPECT_EQ(loader.stats().skipped, 2);
  EXPECT_EQ(loader.stats().first_skipped, reference.stats().first_skipped);
}

// ----------------------------------------------------------------------------------------------------------

/// A stand-in for nvJPEG: libjpeg, and copies that are queued.
class ByLibjpeg final : public DeviceJpeg {
 public:
  ~ByLibjpeg() override { cudaDeviceSynchronize(); }  // copies may still be queued
  void decode(std::span<const Job> jobs) override {
    const auto stream = static_cast<cudaStream_t>(current_stream(test::device()).native());
    for (const Job& job : jobs) {
      const test::Pixels& whole = kept_.emplace_back(test::decode_whole(job.file));
      ASSERT_TRUE(whole.height == job.height && whole.width == job.width);
      ATH_TRY(
          cudaMemcpyAsync(job.to, whole.bytes.data(), whole.bytes.size(), cudaMemcpyHostToDevice, stream));
    }
  }
  std::int64_t files() const { return std::ssize(kept_); }

 private:
  std::deque<test::Pixels> kept_;  // until the copies are done
};

// Evaluation decodes whole images on the CPU, too, so its pixels are equal.
TEST_F(ResizeOnDevice, FilesDecodedThereAreScaledAlike) {
  const DecodedDataset data(std::make_shared<MixedFiles>(45), kDrawn, kMiddle, 5);
  for (const int workers : {0, 2}) {
    const auto jpeg = std::make_shared<ByLibjpeg>();
    const LoaderOptions options{.batch_size = 7, .workers = workers, .prefetch = 3};
    LoaderOptions decoding = here(options);
    decoding.jpeg = jpeg;
    Loader reference(data, options), loader(data, decoding);
    for (const std::int64_t epoch : {0, 1, 2})
      EXPECT_EQ(read_all(loader, epoch), test::steps_of(reference, epoch)) << epoch;
    EXPECT_GE(jpeg->files(), 3 * 20);
  }
}

/// Says of every n-th batch that one of its files cannot be decoded, after another was.
class Refuses final : public DeviceJpeg {
 public:
  explicit Refuses(int every) : every_(every) {}
  void decode(std::span<const Job> jobs) override {
    const bool refuses = ++batches_ % every_ == 0;
    jpeg_.decode(jobs.first(refuses ? 1 : jobs.size()));
    if (!refuses) return;
    synchronize(test::device());
    throw IoError("one of them");
  }

 private:
  ByLibjpeg jpeg_;
  int every_, batches_ = 0;
};

TEST_F(ResizeOnDevice, RefusedBatchesAreDecodedOnTheCpu) {
  const DecodedDataset data(std::make_shared<MixedFiles>(45), kDrawn, kMiddle, 5);
  const LoaderOptions options{.batch_size = 7, .workers = 2, .prefetch = 3};
  LoaderOptions decoding = here(options);
  decoding.jpeg = std::make_shared<Refuses>(3);
  Loader reference(data, options), loader(data, decoding);
  for (const std::int64_t epoch : {0, 1})
    EXPECT_EQ(read_all(loader, epoch), test::steps_of(reference, epoch)) << epoch;
}

TEST_F(ResizeOnDevice, AFileThatNobodyDecodesIsNamed) {
  const auto files = std::make_shared<MixedFiles>(20);
  files->damage(9, 0.7);  // behind the header, which the threads read
  const DecodedDataset data(files, kDrawn, kMiddle, 5);
  LoaderOptions options = here({.batch_size = 4, .workers = 1});
  options.jpeg = std::make_shared<Refuses>(1);
  Loader loader(data, options);
  const std::string text = test::message_of<IoError>([&] { read_all(loader, 0); });
  EXPECT_NE(text.find("sample 9 (file 9): read: jpeg"), std::string::npos) << text;
  EXPECT_NE(text.find("--decode cpu and --bad-samples skip"), std::string::npos) << text;
}

// Few files find room there; the threads decode the others.
TEST_F(ResizeOnDevice, ThreadsDecodeWhatFindsNoRoom) {
  constexpr ImageTransform kSmall{.height = 6, .width = 6, .shorter_side = 6};
  const DecodedDataset data(std::make_shared<MixedFiles>(40), kSmall);
  const auto jpeg = std::make_shared<ByLibjpeg>();
  const LoaderOptions options{.batch_size = 20, .workers = 2, .prefetch = 2};
  LoaderOptions decoding = here(options);
  decoding.jpeg = jpeg;
  Loader reference(data, options), loader(data, decoding);
  for (const std::int64_t epoch : {0, 1})
    EXPECT_EQ(read_all(loader, epoch), test::steps_of(reference, epoch)) << epoch;
  EXPECT_GT(jpeg->files(), 0);
  EXPECT_LT(jpeg->files(), 2 * 2 * 12);
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
TEST_F(ResizeOnDevice, MemoryStaysTheSameOverManyBatches) {
  constexpr ImageTransform kTraining{.height = 4, .width = 4, .random_crop = RandomResizedCrop{}};
  constexpr ImageTransform kTesting{.height = 4, .width = 4};
  const DecodedDataset data(std::make_shared<ManySizes>(), kTraining, kTesting, 2);
  const std::int64_t batches = !cuda_is_emulated() ? 100'000 : test::kChecksEveryAccess ? 600 : 6'000;
  Loader loader(data, here({.batch_size = 4, .shuffle = true, .training = true, .workers = 1}));
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

}  // namespace
}  // namespace athanor
