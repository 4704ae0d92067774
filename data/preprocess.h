#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "kernels/augment.h"

namespace athanor {

/// What makes a byte a number around zero: (byte / 255 - mean) / stddev, per channel.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

/// Mean and standard deviation of each channel over a data set, or over `most` of its images, drawn;
/// of those exact. A constant channel counts as having a standard deviation of 1. Throws what reading does.
Normalization measure(const Dataset& data, std::int64_t most = INT64_MAX, bool skip_unreadable = false);

/// Throws ArgumentError where an Augment changes images in a way that other fields of them cannot follow.
void check_fields(const Augment& augment, const std::vector<FieldSpec>& fields);

/// Batches of bytes to batches a network can take.
class Preprocess {
 public:
  /// Images become `dtype` (floating) on `device`, and so do targets. Throws ArgumentError on sizes that do
  /// not match, an Augment that does not fit the images, or `views` outside of [1, 256].
  Preprocess(const ImageSpec& spec, const Normalization& normalization, DType dtype, Device device,
             const Augment& augment = {}, std::uint64_t seed = 0, std::int64_t views = 1);

  /// [views * N, H, W, C], normalised and, when training, changed at random as (seed, epoch, sample, view)
  /// say; else all views are the same. A batch may be on this device already, and may have no samples.
  Tensor operator()(const Batch& batch, std::int64_t epoch, bool training) const;
  /// A batch as a network takes it: those images, and all other fields, on this device, changed with them as
  /// their FieldKind says. A mask stays u8, what lies outside is 255: cross_entropy's ignore_index.
  Batch prepare(const Batch& batch, std::int64_t epoch, bool training) const;

 private:
  /// Bytes of `from`, changed by RandAugment where there is some, else as they are: `rows` are then none.
  Tensor rand_augmented(const kernels::AugmentKey& key, const Augment& augment, Tensor from, Tensor& rows,
                        const Tensor& samples) const;
  /// Bytes of `from` [N or as many as `rows` choose from, H, W, C] through a table, changed in each view.
  Tensor changed(const Tensor& from, const Tensor& rows, const Tensor& samples, const Tensor& table,
                 const Augment& augment, std::int64_t epoch) const;
  Tensor prepared(const FieldSpec& field, const Tensor& from, const Tensor& samples, const Augment& augment,
                  std::int64_t epoch) const;
  /// [views * N, ...] of one view's shape [N, ...], each filled by make(key, y).
  template <class Make>
  Tensor in_views(const Shape& one, DType dtype, std::int64_t epoch, const Make& make) const;

  ImageSpec spec_;
  Tensor table_, target_table_, mask_table_;  // [C, 256], [4, 256], [1, 256]: what bytes become
  Augment augment_;
  std::uint64_t seed_;
  std::int64_t views_;
};

}  // namespace athanor
