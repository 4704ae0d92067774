#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/decoded_dataset.h"
#include "data/loader.h"
#include "tests/cuda/device.h"
#include "tests/support/image_files.h"
#include "tests/support/loader_steps.h"

// What loaders read whose images a device scales, or decodes.

namespace athanor::test {

/// Images in memory, in many sizes: JPEG in all orientations, and raw ones, grey too.
class MixedFiles final : public Dataset {
 public:
  explicit MixedFiles(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const bool grey = i % 7 == 6;
      const Pixels image = photo(20 + 13 * (i % 8), 24 + 17 * (i % 5), grey ? 1 : 3, std::uint64_t(i));
      File file{Codec::raw, image.height, image.width, image.channels, {}};
      if (grey || i % 3 == 2) {
        file.bytes.assign(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
      } else {
        file.codec = Codec::jpeg;
        file.bytes = with_orientation(jpeg_file(image, {}), static_cast<int>(1 + i % 8));
      }
      files_.push_back(std::move(file));
    }
  }
  std::int64_t size() const override { return std::ssize(files_); }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    const File& file = files_[static_cast<std::size_t>(index)];
    return {bytes_of(file.bytes), file.codec, file.height, file.width, file.channels, index % 10};
  }
  std::string where(std::int64_t index) const override { return fmt::format("file {}", index); }
  /// Cuts a file off within its header.
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

/// How they are transformed in training, and in evaluation.
inline constexpr ImageTransform kDrawn{.height = 18, .width = 20, .random_crop = RandomResizedCrop{}};
inline constexpr ImageTransform kMiddle{.height = 18, .width = 20, .shorter_side = 24};

/// The options of a loader that brings its batches to the device.
inline LoaderOptions for_device(LoaderOptions options, bool resize = true) {
  options.device = device();
  options.resize_on_device = resize;
  return options;
}

/// The steps of an epoch, copied to the CPU.
inline std::vector<LoadedBatch> read_all(Loader& loader, std::int64_t epoch, std::int64_t delivered = 0) {
  std::vector<LoadedBatch> steps;
  Batch batch;
  loader.start_epoch(epoch, delivered);
  while (loader.next(batch))
    steps.push_back(copy_of({batch.images.to(kCpu), batch.labels.to(kCpu), batch.samples.to(kCpu), {}}));
  return steps;
}

}  // namespace athanor::test
