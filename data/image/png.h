#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/image/image.h"

namespace athanor {

/// Decodes parts of PNG images that lie in memory, to RGB: grey, colour and palettes of 1 to 16 bits,
/// interlaced or not. 16 bits are rounded to 8; what is transparent lies over white; gamma and colour
/// profiles are not looked at. Rows up to a part's last one are decoded, and defects behind them not seen.
/// IoErrors name the offset, not the file.
///
/// For one thread at a time. All memory is kept from image to image.
class PngDecoder {
 public:
  PngDecoder();
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  /// True where the bytes begin as a PNG file does.
  static bool recognises(std::span<const std::byte> bytes);

  /// Reads the header. `bytes` must stay until decode() is done.
  ImageSize open(std::span<const std::byte> bytes);
  /// Decodes `box` of the image open() read, once. Valid until the next open(). `classes`: to one channel,
  /// what is stored: indices of a palette, or grey of up to 8 bits. Throws IoError where it is neither.
  ImageView decode(const Box& box, bool classes = false);

 private:
  struct State;
  void attempt(void (*step)(State&));

  std::unique_ptr<State> state_;
};

/// The file of an image of 1 or 3 channels, without loss. `out` is emptied first. Throws ArgumentError on
/// other channels.
void encode_png(const ImageView& image, std::vector<std::byte>& out);

}  // namespace athanor
