#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/image/image.h"
#include "data/image/orientation.h"

namespace athanor {

/// Decodes parts of WebP images in memory, lossy or lossless, to RGB. Transparent pixels are blended over
/// white; profiles are ignored. Sizes, boxes and pixels have the stored orientation; orientation() returns
/// it. Decodes the whole image for any part. IoErrors do not name the file; animations are an error, and so
/// is any image in a build without libwebp. OutOfMemoryError as everywhere.
///
/// For one thread at a time. Reuses pixel memory between images.
class WebpDecoder {
 public:
  /// Whether the bytes begin like a WebP file.
  static bool recognises(std::span<const std::byte> bytes) {
    if (bytes.size() < 12) return false;
    const std::string_view head(reinterpret_cast<const char*>(bytes.data()), 12);
    return head.starts_with("RIFF") && head.ends_with("WEBP");
  }

  /// Reads the header. `bytes` must stay until decode() is done.
  ImageSize open(std::span<const std::byte> bytes);
  /// Orientation of the image open() read, from its EXIF data or XMP.
  const Orientation& orientation() const { return orientation_; }
  /// Decodes `box` of the image open() read, once. Valid until the next open().
  ImageView decode(const Box& box);

 private:
  std::span<const std::byte> bytes_;
  ImageSize size_;
  Orientation orientation_;
  bool opened_ = false, transparent_ = false;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace athanor
