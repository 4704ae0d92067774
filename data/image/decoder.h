#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "data/dataset.h"
#include "data/image/jpeg.h"
#include "data/image/png.h"
#include "data/image/webp.h"
#include "tensor/error.h"

namespace athanor {

/// Decodes parts of JPEG, PNG and WebP images in memory to RGB, as their decoders document. The first bytes
/// give the format: ImageNet has a PNG named .JPEG. Pixels have the stored orientation: ImageReader
/// (data/image/transform.h) turns them upright. For one thread at a time.
class ImageDecoder {
 public:
  /// Reads the header. `bytes` must stay until decode() is done. IoErrors name the offset, not the file.
  ImageSize open(std::span<const std::byte> bytes) {
    if (is_heic(bytes)) {
      detail::fail<IoError>(
          "heic: this format cannot be read: convert the image to JPEG first, with heif-convert IMAGE.heic "
          "IMAGE.jpg (package libheif-examples)");
    }
    codec_ = PngDecoder::recognises(bytes)    ? Codec::png
             : WebpDecoder::recognises(bytes) ? Codec::webp
                                              : Codec::jpeg;
    if (codec_ == Codec::png) return png_.open(bytes);
    return codec_ == Codec::webp ? webp_.open(bytes) : jpeg_.open(bytes);
  }
  /// Whether the bytes begin like HEIF in one of its brands, a common format of phone photos.
  static bool is_heic(std::span<const std::byte> bytes) {
    if (bytes.size() < 12) return false;
    const std::string_view head(reinterpret_cast<const char*>(bytes.data()), 12);
    const std::string_view brand = head.substr(8);
    return head.substr(4, 4) == "ftyp" &&
           (brand == "heic" || brand == "heix" || brand == "hevc" || brand == "mif1");
  }
  /// The orientation of the image that open() read.
  Orientation orientation() const { return codec_ == Codec::jpeg ? jpeg_.orientation() : Orientation(); }
  /// JpegDecoder::is_plain(); false for other formats.
  bool is_plain_jpeg() const { return codec_ == Codec::jpeg && jpeg_.is_plain(); }
  /// Whether decode() supports `reduce`.
  bool reduces() const { return codec_ == Codec::jpeg; }
  /// Decodes `box` of the image open() read, once; see JpegDecoder for `reduce`. Valid until the next open().
  ImageView decode(const Box& box, int reduce = 1) {
    if (codec_ == Codec::png) return png_.decode(box);
    return codec_ == Codec::webp ? webp_.decode(box) : jpeg_.decode(box, reduce);
  }
  /// Decodes a part of a one-channel PNG to its stored values, without colour. Throws IoError on others.
  ImageView decode_classes(const Box& box) {
    if (codec_ != Codec::png)
      detail::fail<IoError>("{}: a mask must be PNG or raw: lossy formats change its classes",
                            name_of(codec_));
    return png_.decode(box, true);
  }

 private:
  JpegDecoder jpeg_;
  PngDecoder png_;
  WebpDecoder webp_;
  Codec codec_ = Codec::jpeg;
};

}  // namespace athanor
