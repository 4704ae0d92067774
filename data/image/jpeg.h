#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/image/image.h"
#include "data/image/orientation.h"

namespace athanor {

/// Decodes parts of JPEG images that lie in memory, to RGB. Grey becomes RGB; CMYK and YCCK (Photoshop's
/// inverted inks, too) become red = (1 - cyan)(1 - black) and so on. Sizes, boxes and pixels are as they are
/// stored; orientation() says how to hold the image.
///
/// A defect that decoders otherwise fill in (an end that comes too early, a bad code) is an error. Only what
/// a part needs is decoded, so defects behind it are not seen. IoErrors name the offset, not the file.
///
/// For one thread at a time. Memory for pixels is kept from image to image.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header. `bytes` must stay until decode() is done.
  ImageSize open(std::span<const std::byte> bytes);
  /// Of the image open() read, from its EXIF data.
  const Orientation& orientation() const;
  /// Decodes `box` of the image open() read, once. With `reduce` 2, 4 or 8, of the image reduced so many
  /// times in each direction, whose sides are ceil(side / reduce): means of squares of pixels, which cost
  /// less than all of them. The pixels are those that the whole image decoded has there, bit for bit.
  /// Valid until the next open().
  ImageView decode(const Box& box, int reduce = 1);

 private:
  struct State;
  void attempt(void (*step)(State&));

  std::unique_ptr<State> state_;
};

inline constexpr std::int64_t kMaxJpegSide = 65500;

/// The JPEG file of an image of 1 or 3 channels; colours at half the resolution in each direction (4:2:0),
/// tables made for the image. `out` is emptied first. Throws ArgumentError on other channels, sides over
/// kMaxJpegSide or a quality outside [1, 100].
void encode_jpeg(const ImageView& image, int quality, std::vector<std::byte>& out);

}  // namespace athanor
