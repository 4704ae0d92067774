#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/image/image.h"

namespace athanor {

/// The orientation of stored pixels, as cameras record it. Pixel (y, x) of the upright image is the stored
/// one at (y, x), or at (x, y) if `transposed`; flipped rows or columns count from the other end.
struct Orientation {
  bool transposed = false, rows_flipped = false, columns_flipped = false;

  bool upright() const { return *this == Orientation(); }
  /// The size of the upright image from that of the stored one, and vice versa.
  ImageSize turned(const ImageSize& size) const {
    return transposed ? ImageSize{size.width, size.height} : size;
  }
  bool operator==(const Orientation&) const = default;
};

/// The orientation in an APP1 segment of a JPEG file (after its length): tag 0x0112 of the first directory.
/// Upright if it is missing or invalid; never throws.
/// Source: CIPA DC-008 (Exif 2.32), 4.5.4 and 4.6.4.
Orientation exif_orientation(std::span<const std::byte> app1);

/// Writes the upright image of `stored`, which has 1 to 4 channels, row by row to `out`.
void turn(const ImageView& stored, const Orientation& orientation, std::uint8_t* out);

}  // namespace athanor
