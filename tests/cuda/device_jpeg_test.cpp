#include "data/device_jpeg.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

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

/// Refuses files, as nvJPEG does: it decodes those before the first, and does not say which one it was.
class Refuses final : public DeviceJpeg {
 public:
  using File = std::span<const std::byte>;
  explicit Refuses(bool (*refuses)(File)) : refuses_(refuses) {}

  void decode(std::span<const Job> jobs) override {
    const auto bad = std::ranges::find_if(jobs, refuses_, &Job::file);
    jpeg_.decode({jobs.begin(), bad});
    if (bad != jobs.end()) {
      synchronize(test::device());
      for (const Job& job : jobs) left_.insert(text(job.file));
      throw IoError("one of them");
    }
    accepted_ += std::ssize(jobs);
    for (const Job& job : jobs) left_.erase(text(job.file));
  }
  /// Files of batches that it decoded, and files that were in none of these.
  std::int64_t accepted() const { return accepted_; }
  const std::set<std::string>& left() const { return left_; }

 private:
  static std::string text(File file) { return {reinterpret_cast<const char*>(file.data()), file.size()}; }

  ByLibjpeg jpeg_;
  bool (*refuses_)(File);
  std::int64_t accepted_ = 0;
  std::set<std::string> left_;
};

bool refuses_all(Refuses::File) {
  return true;
}
bool refuses_some(Refuses::File file) {
  return file.size() % 3 == 0;
}

TEST_F(JpegOnDevice, RefusedFilesAloneAreDecodedOnTheCpu) {
  const DecodedDataset data(std::make_shared<test::MixedFiles>(45), test::kDrawn, test::kMiddle, 5);
  const LoaderOptions options{.batch_size = 15, .workers = 2, .prefetch = 3};
  for (const auto refuses : {refuses_some, refuses_all}) {
    const auto jpeg = std::make_shared<Refuses>(refuses);
    LoaderOptions decoding = test::for_device(options);
    decoding.jpeg = jpeg;
    std::vector<std::string> warnings;
    decoding.on_warning = [&](const std::string& line) { warnings.push_back(line); };
    Loader reference(data, options), loader(data, decoding);
    EXPECT_EQ(test::read_all(loader, 0), test::steps_of(reference, 0));
    EXPECT_FALSE(jpeg->left().empty());
    for (const std::string& file : jpeg->left()) EXPECT_TRUE(refuses(std::as_bytes(std::span(file))));
    EXPECT_EQ(jpeg->accepted() > std::ssize(jpeg->left()), refuses == refuses_some);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(test::names(warnings[0], {"one of them", "decoded on the CPU"})) << warnings[0];
  }
}

TEST_F(JpegOnDevice, AFileThatNobodyDecodesIsNamed) {
  const auto files = std::make_shared<test::MixedFiles>(20);
  for (const std::int64_t i : {9, 10}) files->damage(i, 0.7);  // behind the header, which the threads read
  const DecodedDataset data(files, test::kDrawn, test::kMiddle, 5);
  LoaderOptions options = test::for_device({.batch_size = 4, .workers = 1});
  options.jpeg = std::make_shared<Refuses>(refuses_all);
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
