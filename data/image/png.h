#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/image/image.h"
#include "data/image/orientation.h"

namespace athanor {

/// Decodes parts of PNG images in memory to RGB: grey, colour and palettes of 1 to 16 bits, interlaced or
/// not. 16 bits are rounded to 8; transparent pixels are blended over white; gamma and colour profiles are
/// ignored. Sizes, boxes and pixels have the stored orientation; orientation() returns it. Decodes rows up to
/// a part's last one, so later defects are not detected. IoErrors name the offset, not the file;
/// OutOfMemoryError as everywhere.
///
/// For one thread at a time. Reuses all memory between images.
class PngDecoder {
 public:
  PngDecoder();
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  /// Whether the bytes begin like a PNG file.
  static bool recognises(std::span<const std::byte> bytes);

  /// Reads the header. `bytes` must stay until decode() is done.
  ImageSize open(std::span<const std::byte> bytes);
  /// Orientation of the image open() read, from its EXIF data or XMP.
  const Orientation& orientation() const;
  /// Decodes `box` of the image open() read, once. Valid until the next open(). `classes`: one channel with
  /// the stored values: palette indices, or grey of up to 8 bits. Throws IoError on others.
  ImageView decode(const Box& box, bool classes = false);

 private:
  struct State;
  void attempt(void (*step)(State&));

  std::unique_ptr<State> state_;
};

/// Encodes an image of 1 or 3 channels as a PNG file, lossless, of 8 bits. Clears `out` first. Throws
/// ArgumentError on other channels. Each row has the filter with the least sum of differences, which the PNG
/// specification (section 12.8) recommends.
void encode_png(const ImageView& image, std::vector<std::byte>& out);

}  // namespace athanor
