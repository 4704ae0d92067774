#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

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

/// How EXIF data begin in a JPEG file, and often elsewhere.
inline constexpr std::string_view kExifMark("Exif\0\0", 6);

/// The orientation that an image's metadata give, as Pillow's exif_transpose reads them: tag 0x0112, a whole
/// number, in the first directory of `exif`, a TIFF block that may follow kExifMark; without that tag,
/// tiff:Orientation in `xmp`, a text. Either may be empty. Upright if it is missing or invalid; never throws.
/// Source: CIPA DC-008 (Exif 2.32), 4.5.4 and 4.6.4.
Orientation exif_orientation(std::span<const std::byte> exif, std::span<const std::byte> xmp = {});

/// Writes the upright image of `stored`, which has 1 to 4 channels, row by row to `out`.
void turn(const ImageView& stored, const Orientation& orientation, std::uint8_t* out);

}  // namespace athanor
