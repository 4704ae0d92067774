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

class DeviceJpeg;  // data/device_jpeg.h

/// How an epoch is shuffled.
enum class Order : std::uint8_t {
  random,  ///< a uniformly random permutation of all samples
  /// For files larger than memory: shuffles pages of adjacent samples, then the samples within each window of
  /// pages. Announces upcoming pages to the data set (Dataset::will_need).
  page_random,
};

/// "random" or "pages", as `--order` writes it.
constexpr std::string_view name_of(Order order) {
  return order == Order::random ? "random" : "pages";
}

/// The policy for samples that cannot be read.
struct BadSamples {
  /// Replaces the sample by another, drawn from (seed, epoch, sample), and counts it. Else: next() throws.
  bool skip = false;
  /// More than this many in an epoch are an error anyway; -1: one in a hundred samples, at least one.
  std::int64_t limit = -1;
  /// Reads every sample before the first step, and throws UnreadableSamplesError if any cannot be read: the
  /// Trainer, and evaluate().
  bool list = false;

  /// Whether a sample that cannot be read does not end the run at once.
  bool keeps_going() const { return skip || list; }
};

struct LoaderOptions {
  static constexpr int kAuto = -1;

  std::int64_t batch_size = 64;  ///< over all ranks
  /// Shuffles each epoch by (seed, epoch). Else 0, 1, 2, ...
  bool shuffle = false;
  /// Omits the last, smaller batch of an epoch. Off: every sample exactly once.
  bool drop_last = false;
  std::uint64_t seed = 0;
  /// Reads images for training, which may vary per epoch: Dataset::read_in_epoch().
  bool training = false;

  /// Loader threads; 0: the caller's own, inside next(). kAuto: none for a resident set; else one fewer than
  /// the cores, then adjusted after measuring the first 50 steps.
  int workers = kAuto;
  /// Cores for kAuto; 0: all this process may use. Ranks of one machine share them.
  int cores = 0;
  /// Number of batches in memory, including the one in use.
  int prefetch = 4;
  /// Do not prefetch from this epoch number on; 0: there is always another epoch.
  std::int64_t epochs = 0;

  Order order = Order::random;  ///< for `shuffle`
  /// How often each sample is drawn, in proportion: an epoch of `shuffle` then draws as many samples as there
  /// are, with replacement, as torch's WeightedRandomSampler. Null: each sample once. (data/sample_weights.h)
  std::shared_ptr<const std::vector<double>> weights = {};
  std::int64_t page_samples = 256;
  std::int64_t window_pages = 16;

  int rank = 0, world_size = 1;
  /// The device to which batches are delivered.
  Device device = kCpu;
  /// On a GPU, images of different sizes (a DecodedDataset's) are scaled there instead of by loader threads,
  /// with the same bits.
  bool resize_on_device = true;
  /// With resize_on_device: also decodes plain JPEG files on the GPU, for this loader alone; null: threads
  /// do.
  std::shared_ptr<DeviceJpeg> jpeg = {};
  bool pin_memory = true;  ///< false, for comparison: copies to a GPU use an extra buffer
  /// Keeps all images of a resident set on the device. A batch then has all of them, and row indices.
  bool data_on_device = false;

  BadSamples bad_samples = {};
  /// Called inside next() with one-line notes for the user: a read that does not end.
  std::function<void(const std::string&)> on_warning = {};
  double stuck_after_s = 10;  ///< threshold for reporting a slow read
};

/// A batch of samples. Valid until the next call of next() or start_epoch().
struct Batch {
  Tensor images;         ///< [N, H, W, C] u8; with `rows`, [M, H, W, C]; floating after Preprocess
  Tensor labels;         ///< [N] i64; undefined without labels
  Tensor samples;        ///< [N] i64: their indices in the data set
  Tensor rows;           ///< [N] i64: indices into `images`; undefined: row i is image i
  std::int64_t id = -1;  ///< index among training batches, from 0 over all epochs; -1: not for training
  /// For mixed images (data/mix.h): the labels of the partners, [N] i64, if images have a label, and the
  /// share of the image itself, in [0, 1].
  Tensor partner_labels = {};
  double own_share = 1;
  /// [] i64 on a GPU, for a batch whose memory is filled again for each replay of a captured step: the epoch.
  Tensor epoch = {};
  std::int64_t views = 1;  ///< of each picture: cropped fields then have views * N rows
  /// The other fields, and those present: [N, ...] each.
  std::shared_ptr<const std::vector<FieldSpec>> fields = {};
  std::array<Tensor, RowLayout::kMaxFields> more = {};

  std::int64_t size() const { return samples.defined() ? samples.shape()[0] : 0; }
  /// A field by name, "image", "label", "mask", ...: its first view. Throws ArgumentError listing the
  /// available names.
  Tensor operator[](std::string_view field) const { return view(field, 0); }
  /// View `number` of a field, in [0, views). Fields that cropping does not change, such as labels, have a
  /// single view.
  Tensor view(std::string_view field, std::int64_t number) const;
  /// All views, concatenated: [views * N, ...]; for fields that cropping does not change: [N, ...].
  const Tensor& all_views(std::string_view field) const;
};

/// Seconds spent in next() since start_epoch().
struct LoaderWaits {
  double data_s = 0;    ///< waiting for samples, or reading them itself
  double copy_s = 0;    ///< queueing copies to the device
  double device_s = 0;  ///< waiting for the device, whose queue held all slots
  /// The part of data_s for starting threads in the first step: the excess of their first reads, which open
  /// files and fill caches, over later ones.
  double opening_s = 0;
};

/// Statistics since start_epoch().
struct LoaderStats {
  LoaderWaits waits = {};
  double busy = 0;                 ///< fraction of the time that active threads spent reading, in [0, 1]
  int workers = 0;                 ///< threads that should work now
  int threads = 0;                 ///< existing threads; the rest is parked
  std::int64_t skipped = 0;        ///< samples that were replaced
  std::string first_skipped = {};  ///< the first one: which, where, why
  std::int64_t harmless = 0;       ///< samples with a defect that leaves every pixel as it is
  std::string first_harmless = {};
};

/// Batches of a data set, in an order that depends only on (seed, epoch). Bytes are the same for any number
/// of threads and, over all ranks together, for any number of ranks.
///
/// Loader threads start once and live as long as the loader. They take tickets (step, row) in order and write
/// each sample straight into its row of a slot; a complete slot is the next batch. There are `prefetch`
/// slots, allocated once, of B (sample bytes + 16) bytes, each field rounded up to 64 (B: this rank's rows of
/// a batch). For a GPU they are in page-locked memory, and the GPU has as many: memory_bytes() in all. A step
/// allocates nothing. Reading continues across epochs, also during validation. An epoch's order takes 8 bytes
/// per sample, for the few epochs in use at once.
///
/// If the GPU scales images, a slot has a PixelStage, too, and the GPU one copy of the largest. They grow in
/// the first batches, to a bound.
///
/// On a GPU each slot is copied once, on a separate stream, and work queued after next() waits for the copy
/// there. The host waits only if all slots are in the device's queue.
class Loader {
 public:
  /// `data` must outlive the loader. Throws ArgumentError on an empty data set, a batch size below 1, an
  /// invalid rank, or data_on_device for a set that is not resident.
  Loader(const Dataset& data, const LoaderOptions& options);
  /// In any state; waits only for reads in progress.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Goes to the first batch of an epoch; 0, 1, ... in any order. The loader starts at epoch 0. With
  /// `delivered`, continues after that many samples of the epoch, over all ranks: the following batches equal
  /// those of an uninterrupted epoch. The epoch after the last one costs nothing, as it is prefetched; any
  /// other position waits for reads in progress. Throws ArgumentError if no batch ends there.
  void start_epoch(std::int64_t epoch, std::int64_t delivered = 0);
  /// Fills `batch` with this rank's part of the next step, possibly 0 samples; false at the end of the epoch.
  /// Throws IoError, at its step, for a sample that cannot be read (the first in the batch); the loader then
  /// stays at that step.
  bool next(Batch& batch);

  /// Equal on every rank.
  std::int64_t batches_per_epoch() const;
  /// Samples per epoch over all ranks, without a dropped last batch.
  std::int64_t samples_per_epoch() const;
  /// All samples.
  std::int64_t samples() const;
  std::int64_t epoch() const;
  const ImageSpec& spec() const;
  const LoaderOptions& options() const;
  LoaderStats stats() const;
  /// Only stats().waits, cheap enough for every step.
  const LoaderWaits& waits() const;
  /// Bytes of all slots in host memory; the device has as many, without their PixelStages.
  std::int64_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor
