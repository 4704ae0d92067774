#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "tensor/tensor.h"

namespace athanor {

struct LoaderOptions {
  std::int64_t batch_size = 64;
  /// Each epoch in an order of its own: a permutation drawn from (seed, epoch). Else 0, 1, 2, ...
  bool shuffle = false;
  /// Leaves out the last, smaller batch of an epoch. Off: every sample exactly once.
  bool drop_last = false;
  std::uint64_t seed = 0;
};

/// Some samples of a data set. Valid until the next call of next() or start_epoch().
struct Batch {
  Tensor images;   ///< [N, H, W, C] u8
  Tensor labels;   ///< [N] i64
  Tensor samples;  ///< [N] i64: their indices in the data set

  std::int64_t size() const { return labels.defined() ? labels.shape()[0] : 0; }
};

/// Batches of a data set, in an order that is a function of (seed, epoch) alone. Samples are decoded once and
/// kept in memory; batches are copied into the same tensors again and again, so that an epoch under way asks
/// for no memory.
class Loader {
 public:
  /// `data` must outlive the loader. Throws ArgumentError on an empty data set or a batch size below 1.
  Loader(const Dataset& data, const LoaderOptions& options);

  /// Goes to the first batch of an epoch; 0, 1, ... in any order. The loader starts at epoch 0.
  /// With `delivered`, goes on where that many samples of the epoch have been delivered: the batches that
  /// follow are those of an epoch that was never left. Throws ArgumentError where no batch ends there.
  void start_epoch(std::int64_t epoch, std::int64_t delivered = 0);
  /// Fills `batch` with the next samples; false at the end of the epoch.
  bool next(Batch& batch);

  std::int64_t batches_per_epoch() const;
  /// Samples an epoch delivers: all of them but for a dropped last batch.
  std::int64_t samples_per_epoch() const;
  /// All there are.
  std::int64_t samples() const { return data_->size(); }
  std::int64_t epoch() const { return epoch_; }
  const ImageSpec& spec() const { return data_->spec(); }
  const LoaderOptions& options() const { return options_; }

 private:
  std::unique_ptr<const Dataset> decoded_;
  const Dataset* data_;
  LoaderOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t at_ = 0;
  std::vector<std::int64_t> order_;
  Batch full_, last_;  // of batch_size samples, and of those left over at the end of an epoch
};

}  // namespace athanor
