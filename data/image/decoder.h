#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "data/image/jpeg.h"
#include "data/image/png.h"
#include "tensor/error.h"

namespace athanor {

/// Decodes parts of JPEG and PNG images that lie in memory, to RGB: JpegDecoder and PngDecoder say how. Which
/// it is, the first bytes say: among the files of ImageNet is a PNG that is called .JPEG. Pixels are as they
/// are stored: ImageReader (data/image/transform.h) turns them upright. For one thread at a time.
class ImageDecoder {
 public:
  /// Reads the header. `bytes` must stay until decode() is done. IoErrors name the offset, not the file.
  ImageSize open(std::span<const std::byte> bytes) {
    if (is_heic(bytes)) {
      detail::fail<IoError>(
          "heic: is not read: make it a JPEG first, by heif-convert IMAGE.heic IMAGE.jpg (package "
          "libheif-examples)");
    }
    is_png_ = PngDecoder::recognises(bytes);
    return is_png_ ? png_.open(bytes) : jpeg_.open(bytes);
  }
  /// Whether they begin as a picture of a telephone does: HEIF in one of its brands.
  static bool is_heic(std::span<const std::byte> bytes) {
    if (bytes.size() < 12) return false;
    const std::string_view head(reinterpret_cast<const char*>(bytes.data()), 12);
    const std::string_view brand = head.substr(8);
    return head.substr(4, 4) == "ftyp" &&
           (brand == "heic" || brand == "heix" || brand == "hevc" || brand == "mif1");
  }
  /// How to hold the image that open() read.
  Orientation orientation() const { return is_png_ ? Orientation() : jpeg_.orientation(); }
  /// True where decode() can reduce.
  bool reduces() const { return !is_png_; }
  /// Decodes `box` of the image open() read, once; see JpegDecoder for `reduce`. Valid until the next open().
  ImageView decode(const Box& box, int reduce = 1) {
    return is_png_ ? png_.decode(box) : jpeg_.decode(box, reduce);
  }
  /// A part of a PNG of one channel as it is stored, undone to no colour. Throws IoError of others.
  ImageView decode_classes(const Box& box) {
    if (!is_png_) detail::fail<IoError>("jpeg: a mask must be a PNG or raw: JPEG changes its classes");
    return png_.decode(box, true);
  }

 private:
  JpegDecoder jpeg_;
  PngDecoder png_;
  bool is_png_ = false;
};

}  // namespace athanor
