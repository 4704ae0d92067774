#include "data/device_jpeg.h"

#include <deque>
#include <memory>

#include "tensor/cuda/runtime.h"
#include "tests/cuda/mixed_files.h"
#include "tests/support/errors.h"

// JPEG files that a device decodes, or refuses to.

namespace athanor::device_jpeg_test {

using JpegOnDevice = test::DeviceTest;

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
TEST_F(JpegOnDevice, FilesDecodedThereAreScaledAlike) {
  const DecodedDataset data(std::make_shared<test::MixedFiles>(45), test::kDrawn, test::kMiddle, 5);
  for (const int workers : {0, 2}) {
    const auto jpeg = std::make_shared<ByLibjpeg>();
    const LoaderOptions options{.batch_size = 7, .workers = workers, .prefetch = 3};
    LoaderOptions decoding = test::for_device(options);
    decoding.jpeg = jpeg;
    Loader reference(data, options), loader(data, decoding);
    for (const std::int64_t epoch : {0, 1, 2})
      EXPECT_EQ(test::read_all(loader, epoch), test::steps_of(reference, epoch)) << epoch;
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

TEST_F(JpegOnDevice, RefusedBatchesAreDecodedOnTheCpu) {
  const DecodedDataset data(std::make_shared<test::MixedFiles>(45), test::kDrawn, test::kMiddle, 5);
  const LoaderOptions options{.batch_size = 7, .workers = 2, .prefetch = 3};
  LoaderOptions decoding = test::for_device(options);
  decoding.jpeg = std::make_shared<Refuses>(3);
  Loader reference(data, options), loader(data, decoding);
  for (const std::int64_t epoch : {0, 1})
    EXPECT_EQ(test::read_all(loader, epoch), test::steps_of(reference, epoch)) << epoch;
}

TEST_F(JpegOnDevice, AFileThatNobodyDecodesIsNamed) {
  const auto files = std::make_shared<test::MixedFiles>(20);
  files->damage(9, 0.7);  // behind the header, which the threads read
  const DecodedDataset data(files, test::kDrawn, test::kMiddle, 5);
  LoaderOptions options = test::for_device({.batch_size = 4, .workers = 1});
  options.jpeg = std::make_shared<Refuses>(1);
  Loader loader(data, options);
  EXPECT_ERROR(IoError, test::read_all(loader, 0), "sample 9", "file 9", "jpeg", "--decode cpu",
               "--bad-samples skip");
}

// Few files find room there; the threads decode the others.
TEST_F(JpegOnDevice, ThreadsDecodeWhatFindsNoRoom) {
  constexpr ImageTransform kSmall{.height = 6, .width = 6, .shorter_side = 6};
  const DecodedDataset data(std::make_shared<test::MixedFiles>(40), kSmall);
  const auto jpeg = std::make_shared<ByLibjpeg>();
  const LoaderOptions options{.batch_size = 20, .workers = 2, .prefetch = 2};
  LoaderOptions decoding = test::for_device(options);
  decoding.jpeg = jpeg;
  Loader reference(data, options), loader(data, decoding);
  for (const std::int64_t epoch : {0, 1})
    EXPECT_EQ(test::read_all(loader, epoch), test::steps_of(reference, epoch)) << epoch;
  EXPECT_GT(jpeg->files(), 0);
  EXPECT_LT(jpeg->files(), 2 * 2 * 12);
}

}  // namespace athanor::device_jpeg_test
