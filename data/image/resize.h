#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/image/detail/bicubic.h"
#include "data/image/image.h"
#include "kernels/resize.h"

namespace athanor {

/// Maximum side of a scaled image in pixels.
inline constexpr std::int64_t kMaxImageSide = 16384;

/// The source pixels [first, last) needed for `count` pixels of the result.
struct Reach {
  std::int64_t first = 0, last = 0;
};
Reach reach(const Window& window, std::int64_t count);

/// Scales images of bytes. Bilinear: a result's pixel is the mean of its source pixels weighted by a triangle
/// of max(scale, 1) to each side, normalised at the window's ends. Equals torchvision's resize with
/// antialias=True, as bicubic (BicubicResizer) and nearest do.
///
/// Within 1 of the exact result, and the same bits everywhere: kernels::resize_images has them on a GPU,
/// except bicubic. For one thread at a time; memory and the last weights are cached.
class Resizer {
 public:
  /// Writes height x width pixels of image.channels (1 to 4) to `out`; what its padding gets is unspecified.
  /// Windows are in pixels of `image`, with the same interpolation. Throws ArgumentError if they extend
  /// outside it, or `out` has another size.
  void operator()(const ImageView& image, const Window& rows, const Window& columns, std::int64_t height,
                  std::int64_t width, std::span<std::uint8_t> out);

 private:
  /// For each pixel of the result: the first of its `taps` source pixels; their weights sum to 65535.
  struct Axis {
    Window window;
    std::int64_t count = 0, taps = 0;
    std::vector<std::int32_t> first;
    std::vector<std::uint16_t> weight;  // [count, taps]

    bool prepare(const Window& wanted, std::int64_t size);
  };
  void prepare_groups(std::int64_t channels);
  const std::uint8_t* readable(const ImageView& image, std::int64_t y);

  BicubicResizer bicubic_;
  Axis rows_, columns_;
  // Values of a row are computed in groups of eight, from sixteen adjacent bytes.
  std::vector<std::int32_t> group_from_, group_to_;  // first byte read, first value written
  std::vector<std::uint8_t> group_pick_;             // [groups, 16]: source byte for each half of a value
  std::vector<std::uint16_t> group_weight_;          // [groups / 2, taps, 16]
  std::int64_t channels_ = 0;
  std::vector<std::uint16_t> narrow_;           // [taps of rows_, values + 8]: rows of the result's width
  std::vector<const std::uint16_t*> tap_rows_;  // the rows of narrow_ for a row of the result
  std::vector<std::uint8_t> padded_;            // a row with padding at its end
};

}  // namespace athanor
