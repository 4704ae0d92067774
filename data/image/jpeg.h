#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "data/image/image.h"
#include "data/image/orientation.h"

namespace athanor {

/// Decodes parts of JPEG images in memory to RGB. Grey becomes RGB; CMYK and YCCK (including Photoshop's
/// inverted inks) become red = (1 - cyan)(1 - black) and so on. Sizes, boxes and pixels have the stored
/// orientation; orientation() returns it.
///
/// Defects that other decoders conceal (a premature end, a bad code) are errors; those that leave every pixel
/// as it is (bytes between two segments of the header) are a warning(). Decodes only what a part needs, so
/// later defects are not detected. IoErrors name the offset, not the file; OutOfMemoryError as everywhere.
///
/// For one thread at a time. Reuses pixel memory between images.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header. `bytes` must stay until decode() is done.
  ImageSize open(std::span<const std::byte> bytes);
  /// Orientation of the image open() read, from its EXIF data or XMP.
  const Orientation& orientation() const;
  /// The first defect found so far that changes no pixel, in libjpeg's words; empty: none.
  std::string_view warning() const;
  /// Whether it is of the kind that a GPU's engines decode: one baseline pass of YCbCr, sampled 4:4:4, 4:2:2,
  /// 4:4:0 or 4:2:0.
  bool is_plain() const;
  /// Whether decode() needs the whole image's coefficients in memory: it is progressive, or has several
  /// scans.
  bool has_several_scans() const;
  /// Decodes `box` of the image open() read, once. `reduce` 2, 4 or 8 reduces the image by that factor in
  /// each direction, to sides of ceil(side / reduce): means of pixel squares, cheaper than full decoding.
  /// Pixels equal those of the fully decoded image, bit for bit. Valid until the next open().
  ImageView decode(const Box& box, int reduce = 1);

 private:
  struct State;
  void attempt(void (*step)(State&));

  std::unique_ptr<State> state_;
};

/// The longest side that encode_jpeg() writes, in pixels: libjpeg has no longer ones.
inline constexpr std::int64_t kMaxJpegSide = 65500;

/// Encodes an image of 1 or 3 channels as a JPEG file, with chroma at half the resolution (4:2:0) and
/// optimised tables. Clears `out` first. Throws ArgumentError on other channels, sides over kMaxJpegSide or a
/// quality outside [1, 100].
void encode_jpeg(const ImageView& image, int quality, std::vector<std::byte>& out);

}  // namespace athanor
