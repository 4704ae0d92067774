#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/sample_row.h"
#include "tensor/tensor.h"

namespace athanor {

/// How an epoch is shuffled.
enum class Order : std::uint8_t {
  random,  ///< every permutation of all samples equally likely
  /// For files larger than memory: pages of samples that lie side by side are shuffled, then the samples
  /// within each window of pages. The data set is told which pages come next (Dataset::will_need).
  page_random,
};

constexpr std::string_view name_of(Order order) {
  return order == Order::random ? "random" : "pages";
}

/// What becomes of a sample that cannot be read.
struct BadSamples {
  /// Another sample, drawn from (seed, epoch, sample), takes its place, and is counted. Else: next() throws.
  bool skip = false;
  /// More in an epoch than this are an error all the same; -1: one in a hundred samples, at least one.
  std::int64_t limit = -1;
};

struct LoaderOptions {
  static constexpr int kAuto = -1;

  std::int64_t batch_size = 64;  ///< of all ranks together
  /// Each epoch in an order of its own, drawn from (seed, epoch). Else 0, 1, 2, ...
  bool shuffle = false;
  /// Leaves out the last, smaller batch of an epoch. Off: every sample exactly once.
  bool drop_last = false;
  std::uint64_t seed = 0;
  /// Images as training sees them, which may be others in each epoch: Dataset::read_in_epoch().
  bool training = false;

  /// Threads that read; 0: the caller's own, inside next(). kAuto: none for a resident set; else as many as
  /// there are cores but one, then more or fewer by what the first 50 steps show.
  int workers = kAuto;
  /// Cores that kAuto counts on; 0: all this process may use. Ranks of one machine share them.
  int cores = 0;
  /// Batches there is memory for, the one in use among them.
  int prefetch = 4;
  /// Nothing is read ahead of the epoch with this number; 0: there is always another.
  std::int64_t epochs = 0;

  Order order = Order::random;  ///< of `shuffle`
  std::int64_t page_samples = 256;
  std::int64_t window_pages = 16;

  int rank = 0, world_size = 1;
  /// Where batches are delivered.
  Device device = kCpu;
  bool pin_memory = true;  ///< off, to compare: copies to a GPU go through one more buffer
  /// Keeps all images of a resident set on the device. A batch is then all of them and the rows to take.
  bool data_on_device = false;

  BadSamples bad_samples = {};
  /// Told, inside next(), what a person should know, one line each: a read that does not end, a sample that
  /// was replaced.
  std::function<void(const std::string&)> on_warning = {};
  double stuck_after_s = 10;  ///< a read that takes longer is told of
};

/// Some samples of a data set. Valid until the next call of next() or start_epoch().
struct Batch {
  Tensor images;   ///< [N, H, W, C] u8; with `rows`, [M, H, W, C]; floating once Preprocess has prepared them
  Tensor labels;   ///< [N] i64; undefined where samples have none
  Tensor samples;  ///< [N] i64: their indices in the data set
  Tensor rows;     ///< [N] i64: where in `images` they are; undefined: one after the other
  std::int64_t id = -1;  ///< of the training's batches, from 0 over all epochs; -1: of no training
  /// Where images are mixed (data/mix.h): the labels of those that they are mixed with, [N] i64, and the
  /// share of an image that is its own, in [0, 1].
  Tensor partner_labels = {};
  double own_share = 1;
  std::int64_t views = 1;  ///< of each picture: then what cropping changes has views * N rows
  /// The fields beside these, and of what there are any: [N, ...] each.
  std::shared_ptr<const std::vector<FieldSpec>> fields = {};
  std::array<Tensor, RowLayout::kMostFields> more = {};

  std::int64_t size() const { return samples.defined() ? samples.shape()[0] : 0; }
  /// A field by its name, "image", "label", "mask", ...: of several views the first. Throws ArgumentError,
  /// naming what there is.
  Tensor operator[](std::string_view field) const { return view(field, 0); }
  /// The field as it is in view `number` of each sample, in [0, views). Views of what cropping does not
  /// change, such as labels, are one.
  Tensor view(std::string_view field, std::int64_t number) const;
  /// All views, one after the other: [views * N, ...]; what cropping does not change: [N, ...].
  const Tensor& all_views(std::string_view field) const;
};

/// Seconds that next() took since start_epoch().
struct LoaderWaits {
  double data_s = 0;    ///< waiting for samples, or reading them itself
  double copy_s = 0;    ///< putting copies into the device's queue
  double device_s = 0;  ///< waiting for the device, which had all slots in its queue
  /// Of data_s, until threads had begun: what their first reads took longer than those that followed, which
  /// open files and fill caches. Of the first step after they were made.
  double opening_s = 0;
};

/// What a loader did since start_epoch().
struct LoaderStats {
  LoaderWaits waits = {};
  double busy = 0;                 ///< the part of the time that threads at work spent reading, in [0, 1]
  int workers = 0;                 ///< threads that are to work now
  int threads = 0;                 ///< that there are; the rest is parked
  std::int64_t skipped = 0;        ///< samples that others took the place of
  std::string first_skipped = {};  ///< the first of them: which, where, why
};

/// Batches of a data set, in an order that is a function of (seed, epoch) alone: the same bytes for any
/// number of threads, and together the same for any number of ranks.
///
/// Threads are made once and live as long as the loader. They take tickets (step, row) in order and write
/// each sample straight into its row of a slot; a slot that is complete is the next batch. There are
/// `prefetch` slots, made once, each of B (sample bytes + 16) bytes, each field rounded up to 64 (B: this
/// rank's rows of a batch), in page-locked memory where the batches go to a GPU, which has as many:
/// memory_bytes() in all, and nothing is allocated per step. Reading goes on across the end of an epoch,
/// while the caller validates. An epoch's order takes 8 bytes a sample, for the few epochs under way at once.
///
/// On a GPU each slot is one copy on a stream of its own, and what the caller queues after next() waits for
/// it there. The host waits only when all slots are in the device's queue.
class Loader {
 public:
  /// `data` must outlive the loader. Throws ArgumentError on an empty data set, a batch size below 1, ranks
  /// that do not exist, or data_on_device for a set that is not resident.
  Loader(const Dataset& data, const LoaderOptions& options);
  /// In any state; waits for the reads under way, but for nothing else.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Goes to the first batch of an epoch; 0, 1, ... in any order. The loader starts at epoch 0.
  /// With `delivered`, goes on where that many samples of the epoch have been delivered, over all ranks: the
  /// batches that follow are those of an epoch that was never left. The epoch after the last one costs
  /// nothing, it is under way; any other place waits for the reads under way. Throws ArgumentError where no
  /// batch ends there.
  void start_epoch(std::int64_t epoch, std::int64_t delivered = 0);
  /// Fills `batch` with this rank's part of the next step, which may be 0 samples; false at the end of the
  /// epoch. Throws IoError, at its step, for a sample that cannot be read (of several, the first in the
  /// batch); then it stays at that step.
  bool next(Batch& batch);

  /// The same on every rank.
  std::int64_t batches_per_epoch() const;
  /// Samples an epoch delivers over all ranks: all of them but for a dropped last batch.
  std::int64_t samples_per_epoch() const;
  /// All there are.
  std::int64_t samples() const;
  std::int64_t epoch() const;
  const ImageSpec& spec() const;
  const LoaderOptions& options() const;
  LoaderStats stats() const;
  /// stats().waits alone, for every step.
  const LoaderWaits& waits() const;
  /// Bytes of all slots in host memory; the device has as many.
  std::int64_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor
