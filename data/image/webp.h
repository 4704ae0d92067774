#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/image/image.h"

namespace athanor {

/// Decodes parts of WebP images in memory, lossy or lossless, to RGB. Transparent pixels are blended over
/// white; profiles and EXIF data are ignored. Decodes the whole image for any part. IoErrors do not name the
/// file; animations are an error, and so is any image in a build without libwebp.
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
  /// Decodes `box` of the image open() read, once. Valid until the next open().
  ImageView decode(const Box& box);

 private:
  std::span<const std::byte> bytes_;
  ImageSize size_;
  bool opened_ = false, transparent_ = false;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace athanor
