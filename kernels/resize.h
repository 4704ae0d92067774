#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor {

/// How a pixel between pixels is computed. All but nearest are antialiased: a result's pixel is the mean of
/// its source pixels weighted by a filter that is widened by the scale, where images shrink. Bicubic: by Keys
/// 1981 with a = -1/2.
enum class Resampling : std::uint8_t { bilinear, bicubic, nearest };

/// The mapping of a result's pixels to its source along one axis: pixel i is centred at centre(i) in the
/// source, and uses only source pixels in [low, high). Pixels outside [begin, end) have no source: they are
/// padding.
struct Window {
  double scale = 1, offset = 0;
  std::int64_t low = 0, high = 0;
  std::int64_t begin = 0, end = INT64_MAX;
  Resampling interpolation = Resampling::bilinear;

  ATH_HD double centre(std::int64_t i) const {
    return (static_cast<double>(i - begin) + 0.5) * scale + offset;
  }
  ATH_HD bool covers(std::int64_t i) const { return i >= begin && i < end; }

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
  std::int16_t padding = 0;  ///< the byte of pixels without a source
  Window rows, columns;      ///< of the stored result: its rows are y's columns if it is transposed

  bool operator==(const StagedImage&) const = default;
};

/// Scales images of different sizes to one, as Resizer (data/image/resize.h) does, to the bit, pads them and
/// turns them upright. Not bicubic.
///
/// images [N * sizeof(StagedImage)] u8: an array of them, 8-byte aligned. pixels [M] u8. y [N, H, W, C] u8,
/// dense, C in [1, 4]; each image has C channels, or one that becomes all C. Rows of y whose image is
/// complete are unchanged. Moves each byte of the source, and each of the result.
ATH_KERNEL(void, resize_images, const Tensor& images, const Tensor& pixels, Out y);

}  // namespace kernels
}  // namespace athanor
