#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/image/image.h"
#include "kernels/augment.h"

// Which part of an image becomes a sample, and its size: what lets a decoder save work. kernels::augment
// changes the pixels (flip, colours, cutout, normalisation) on the device.

namespace athanor {

/// For resized images.
inline constexpr std::int64_t kMaxResizedChannels = 4;

/// The key of a random draw.
struct DrawKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, sample = 0;
};

/// The part of an image of that size that a crop takes; the same for the same key.
Box draw(const RandomResizedCrop& crop, const ImageSize& size, const DrawKey& key);

/// Transforms an image of any size to height x width.
struct ImageTransform {
  std::int64_t height = 224, width = 224;
  /// Scales a random part to that size.
  std::optional<RandomResizedCrop> random_crop = {};
  /// Without it: scales the shorter side to this many pixels, the longer one in proportion, and crops the
  /// centre. 0: scales to the smallest size that covers height x width.
  std::int64_t shorter_side = 0;

  bool operator==(const ImageTransform&) const = default;
};

/// "random part of 8 to 100 %, 224x224": for messages and settings.
std::string describe(const ImageTransform& transform);
/// Throws ArgumentError on an invalid transform.
void check(const ImageTransform& transform);

}  // namespace athanor
