#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "optim.h"

namespace engine {

/// Samples that have to be read: from a disk, say. All functions are called by several threads at the same
/// time.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::int64_t size() const = 0;
  /// Of one image: [c, h, w].
  virtual Shape image_shape() const = 0;
  /// Writes image `sample` in row-major order, and returns its class. Throws if the sample cannot be read.
  virtual int read(std::int64_t sample, float* image) const = 0;
  /// What a user would look for: a file's name.
  virtual std::string name(std::int64_t sample) const { return std::to_string(sample); }
};

/// A Dataset, which is in memory, as a Source.
class InMemory final : public Source {
 public:
  explicit InMemory(Dataset data) : data_(std::move(data)) {}
  std::int64_t size() const override { return data_.size(); }
  Shape image_shape() const override;
  int read(std::int64_t sample, float* image) const override;

 private:
  Dataset data_;
};

/// An image [c, h, w], moved by so many rows down and columns to the right, or up and to the left where they
/// are negative. What moves in is 0. The two do not overlap in memory.
void shift_image(const float* from, float* to, const Shape& shape, std::int64_t down, std::int64_t right);

struct Shift {
  std::int64_t down = 0, right = 0;
};
/// Two numbers from -most to most, all equally likely: a function of the three others, whoever asks and
/// whatever was drawn before.
Shift random_shift(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, std::int64_t most);

/// Reads batches ahead, by threads, into a ring of slots. What a batch holds depends on source, seed, epoch
/// and place alone: it is that of epoch_order() and random_shift(), for any number of workers.
class Loader {
 public:
  struct Options {
    std::int64_t batch_size = 32;
    /// Threads; with 0, next() reads.
    int workers = 2;
    /// Batches in memory, among them the one that the caller has. They are allocated once.
    int slots = 4;
    /// At most so many pixels is each image moved, each way.
    std::int64_t most_shift = 0;
    std::uint64_t seed = 1;
  };
  /// Starts the threads, which wait for start(). The source must live longer than the loader. Throws
  /// std::invalid_argument for a batch size or number of slots below 1, or a negative number of workers or
  /// pixels.
  Loader(const Source& source, const Options& options);
  /// Ends the threads, each of which first ends the sample that it reads.
  ~Loader();

  /// Of an epoch; a last batch that is not full is left out. May be 0: then nothing is read, and next()
  /// returns null.
  std::int64_t batches() const;
  /// The next batch is this one of this epoch. No sample before it is read. Costs nothing if the next batch
  /// is this one already, as at the end of the epoch before. Throws std::invalid_argument unless epoch >= 0
  /// and 0 <= batch <= batches().
  void start(std::int64_t epoch, std::int64_t batch = 0);
  /// The next batch of the epoch, valid until the next call of next() or start(); null at the epoch's end,
  /// and before the first start(). If one of the batch's samples cannot be read, whatever read() threw,
  /// throws std::runtime_error, which has the sample's number, its name and the reason; of several such
  /// samples, those of the first in the batch. The call after that gives the batch after that.
  const Dataset* next();

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;
};

}  // namespace engine
