#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "kernels/augment.h"

namespace athanor {

/// Maps bytes to numbers around zero: (byte / 255 - mean) / stddev, per channel.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

/// Mean and standard deviation of each channel, exact, over a data set or over `most` random images. A
/// constant channel gets a standard deviation of 1. Throws what reading throws.
Normalization measure(const Dataset& data, std::int64_t most = INT64_MAX, bool skip_unreadable = false);

/// Throws ArgumentError if an Augment changes images in a way that their other fields cannot follow.
void check_fields(const Augment& augment, const std::vector<FieldSpec>& fields);

/// Converts batches of bytes to network input.
class Preprocess {
 public:
  /// Images and targets become `dtype` (floating) on `device`. Throws ArgumentError on sizes that do not
  /// match, an Augment unsuitable for the images, or `views` outside [1, 256].
  Preprocess(const ImageSpec& spec, const Normalization& normalization, DType dtype, Device device,
             const Augment& augment = {}, std::uint64_t seed = 0, std::int64_t views = 1);

  /// The images that it takes.
  const ImageSpec& spec() const { return spec_; }
  /// [views * N, H, W, C], normalised and, in training, randomly changed by (seed, epoch, sample, view);
  /// otherwise all views are equal. A batch may already be on this device, and may have no samples.
  Tensor operator()(const Batch& batch, std::int64_t epoch, bool training) const;
  /// The batch as network input: those images, and all other fields, on this device, changed with them by
  /// their FieldKind. A mask stays u8, and 255 outside the image: cross_entropy's ignore_index.
  Batch prepare(const Batch& batch, std::int64_t epoch, bool training) const;

 private:
  /// Bytes of `from`, changed by the passes of RandAugment and others (then `rows` is cleared), else
  /// unchanged.
  Tensor with_passes(const kernels::AugmentKey& key, const Augment& augment, Tensor from, Tensor& rows,
                     const Tensor& samples) const;
  /// Bytes of `from` [N, or the source of `rows`, H, W, C] mapped by a table, changed in each view.
  Tensor changed(const Tensor& from, const Tensor& rows, const Tensor& samples, const Tensor& table,
                 const Augment& augment, const kernels::AugmentKey& of_pass) const;
  Tensor prepared(const FieldSpec& field, const Tensor& from, const Tensor& samples, const Augment& augment,
                  const kernels::AugmentKey& of_pass) const;
  /// [views * N, ...] for one view's shape [N, ...], each filled by make(key, y).
  template <class Make>
  Tensor in_views(const Shape& one, DType dtype, kernels::AugmentKey key, const Make& make) const;
  kernels::AugmentKey key_of(const Batch& batch, std::int64_t epoch) const;

  ImageSpec spec_;
  Tensor table_, target_table_, mask_table_;  // [C, 256], [4, 256], [1, 256]: byte mappings
  Augment augment_;
  std::uint64_t seed_;
  std::int64_t views_;
};

}  // namespace athanor
