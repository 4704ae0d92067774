#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor {

/// The mapping of a result's pixels to its source along one axis: pixel i is centred at (i + 0.5) * scale +
/// offset in the source, and uses only source pixels in [low, high).
struct Window {
  double scale = 1, offset = 0;
  std::int64_t low = 0, high = 0;

  bool operator==(const Window&) const = default;
};

namespace kernels {

/// An image of bytes, height x width x channels and dense, that is to be scaled. Both axes may have at most
/// kManyTaps taps (kernels/resize_ops.h).
struct StagedImage {
  static constexpr std::int64_t kComplete = -1;

  std::int64_t at = kComplete;  ///< its first byte; kComplete: the result exists already
  std::int32_t height = 0, width = 0;
  std::int16_t channels = 0;
  /// The result as stored is turned like data/image/orientation.h: first both flips, then the transposition.
  std::int16_t transposed = 0, rows_flipped = 0, columns_flipped = 0;
  Window rows, columns;  ///< of the stored result: its rows are y's columns if it is transposed

  bool operator==(const StagedImage&) const = default;
};

/// Scales images of different sizes to one, as Resizer (data/image/resize.h) does, to the bit, and turns them
/// upright.
///
/// images [N * sizeof(StagedImage)] u8: an array of them, 8-byte aligned. pixels [M] u8. y [N, H, W, C] u8,
/// dense, C in [1, 4]; each image has C channels, or one that becomes all C. Rows of y whose image is
/// complete are unchanged. Moves each byte of the source, and each of the result.
ATH_KERNEL(void, resize_images, const Tensor& images, const Tensor& pixels, Out y);

}  // namespace kernels
}  // namespace athanor
