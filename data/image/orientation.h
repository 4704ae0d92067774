#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/image/image.h"

namespace athanor {

/// How the pixels of a file lie, as a camera notes it: the pixel (y, x) of the upright image is the stored
/// one at (y, x), or at (x, y) where `transposed`; then rows and columns are counted from the other end
/// where they are flipped.
struct Orientation {
  bool transposed = false, rows_flipped = false, columns_flipped = false;

  bool upright() const { return *this == Orientation(); }
  /// The size of the upright image for that of the stored one, and back.
  ImageSize turned(const ImageSize& size) const {
    return transposed ? ImageSize{size.width, size.height} : size;
  }
  bool operator==(const Orientation&) const = default;
};

/// The orientation in an APP1 segment of a JPEG file (behind its length): tag 0x0112 of the first directory.
/// Upright where the segment holds none, or none that can be; whatever the bytes are, nothing is thrown.
/// Source: CIPA DC-008 (Exif 2.32), 4.5.4 and 4.6.4.
Orientation exif_orientation(std::span<const std::byte> app1);

/// Writes the upright image of `stored`, which has 1 to 4 channels, row by row to `out`.
void turn(const ImageView& stored, const Orientation& orientation, std::uint8_t* out);

}  // namespace athanor
