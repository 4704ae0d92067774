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

/// Batches of bytes to batches a network can take.
class Preprocess {
 public:
  /// Images become `dtype` (floating) on `device`. Throws ArgumentError on sizes that do not match or an
  /// Augment that does not fit the images.
  Preprocess(const ImageSpec& spec, const Normalization& normalization, DType dtype, Device device,
             const Augment& augment = {}, std::uint64_t seed = 0);

  /// [N, H, W, C], normalised and, when training, changed at random as (seed, epoch, sample) say. A batch may
  /// be on this device already, and may have no samples.
  Tensor operator()(const Batch& batch, std::int64_t epoch, bool training) const;
  /// A batch as a network takes it: those images, and the labels, on this device.
  Batch prepare(const Batch& batch, std::int64_t epoch, bool training) const;

 private:
  ImageSpec spec_;
  Tensor table_;  // [C, 256]
  Augment augment_;
  std::uint64_t seed_;
};

}  // namespace athanor
