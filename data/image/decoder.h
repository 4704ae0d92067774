#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

#include "data/dataset.h"
#include "data/image/jpeg.h"
#include "data/image/png.h"
#include "data/image/webp.h"
#include "tensor/base/error.h"

namespace athanor {

/// Decodes parts of JPEG, PNG and WebP images in memory to RGB, as their decoders document. The first bytes
/// give the format: ImageNet has a PNG named .JPEG. Pixels have the stored orientation: ImageReader
/// (data/image/reader.h) turns them upright. For one thread at a time.
class ImageDecoder {
 public:
  /// Reads the header. `bytes` must stay until decode() is done. IoErrors name the offset, not the file; of
  /// another kind of file they name the kind. Throws OutOfMemoryError as decode() does.
  ImageSize open(std::span<const std::byte> bytes);
  /// The orientation of the image that open() read.
  const Orientation& orientation() const {
    if (codec_ == Codec::png) return png_.orientation();
    return codec_ == Codec::webp ? webp_.orientation() : jpeg_.orientation();
  }
  /// JpegDecoder::warning(); empty for other formats.
  std::string_view warning() const { return codec_ == Codec::jpeg ? jpeg_.warning() : std::string_view(); }
  /// JpegDecoder::is_plain(); false for other formats.
  bool is_plain_jpeg() const { return codec_ == Codec::jpeg && jpeg_.is_plain(); }
  /// Whether decode() supports `reduce`.
  bool reduces() const { return codec_ == Codec::jpeg; }
  /// The most memory that decode() takes for the image open() read: four channels; for WebP, its own copy;
  /// for a JPEG of several scans, coefficients of 16 bits.
  std::int64_t most_decoding_bytes() const {
    const bool coefficients = codec_ == Codec::jpeg && jpeg_.has_several_scans();
    return size_.height * size_.width * (coefficients ? 12 : codec_ == Codec::webp ? 8 : 4);
  }
  /// Decodes `box` of the image open() read, once; see JpegDecoder for `reduce`. Valid until the next open().
  /// Throws OutOfMemoryError if the system has no memory for it.
  ImageView decode(const Box& box, int reduce = 1) {
    return in_memory([&] {
      if (codec_ == Codec::png) return png_.decode(box);
      return codec_ == Codec::webp ? webp_.decode(box) : jpeg_.decode(box, reduce);
    });
  }
  /// Decodes a part of a one-channel PNG to its stored values, without colour. Throws IoError on others.
  ImageView decode_classes(const Box& box) {
    if (codec_ != Codec::png)
      detail::fail<IoError>("{}: a mask must be PNG or raw: lossy formats change its classes",
                            name_of(codec_));
    return in_memory([&] { return png_.decode(box, true); });
  }

 private:
  /// Decoders throw std::bad_alloc.
  template <class F> std::invoke_result_t<F> in_memory(const F& decode) const {
    try {
      return decode();
    } catch (const std::bad_alloc&) {
      detail::fail<OutOfMemoryError>("{}: decoding an image of {}x{} pixels needs more memory than is left",
                                     name_of(codec_), size_.width, size_.height);
    }
  }

  JpegDecoder jpeg_;
  PngDecoder png_;
  WebpDecoder webp_;
  Codec codec_ = Codec::jpeg;
  ImageSize size_;
};

}  // namespace athanor
