#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace athanor {

/// What every image of a data set looks like: height x width pixels of `channels` bytes, in one of `classes`.
struct ImageSpec {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t classes = 0;

  /// Bytes of one image.
  std::int64_t bytes() const { return height * width * channels; }
  bool operator==(const ImageSpec&) const = default;
};

/// Labelled images of one size. What a user writes to train on data of their own.
class Dataset {
 public:
  Dataset() = default;
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  /// How many images there are.
  virtual std::int64_t size() const = 0;
  virtual const ImageSpec& spec() const = 0;
  /// Writes image `index` in [0, size()), row by row, channels last, into `pixels` (spec().bytes() long), and
  /// returns its label in [0, classes). Thread-safe. Throws IoError naming the file when it cannot.
  virtual std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const = 0;
  /// The image as training sees it in `epoch`. A data set whose images are drawn anew each time (random
  /// crops) overrides it; what is drawn is a function of its seed, the epoch and the index alone. Else:
  /// read().
  virtual std::int64_t read_in_epoch(std::int64_t index, std::int64_t /*epoch*/,
                                     std::span<std::uint8_t> pixels) const {
    return read(index, pixels);
  }
  /// Where image `index` comes from, for messages: "FILE, offset N", or nothing.
  virtual std::string where(std::int64_t /*index*/) const { return {}; }
  /// True where read() only copies from memory: a loader then needs no threads.
  virtual bool resident() const { return false; }
  /// Says that images [first, first + count) will be read soon. Thread-safe.
  virtual void will_need(std::int64_t /*first*/, std::int64_t /*count*/) const {}
};

}  // namespace athanor
