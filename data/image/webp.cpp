#include "data/image/webp.h"

#include <algorithm>
#include <new>

#include <webp/decode.h>

#include "data/formats/detail/bytes.h"
#include "data/image/detail/over_white.h"
#include "data/image/detail/room.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

const char* text_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA: return "the data ends too early";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "a feature that libwebp does not support";
    default: return "data that is not a WebP image";
  }
}

[[noreturn]] void refuse(VP8StatusCode status) {
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  detail::fail<IoError>("webp: must be complete WebP data, but got: {}", text_of(status));
}

const std::uint8_t* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

/// By the first EXIF and XMP chunks of an extended file whose head announces them; others are not metadata.
Orientation orientation_in(std::span<const std::byte> file) {
  constexpr std::size_t kRiff = 12, kHead = 8;
  constexpr unsigned kHasExif = 8, kHasXmp = 4;
  if (file.size() < kRiff + kHead + 1 || detail::text_of(file.subspan(kRiff, 4)) != "VP8X") return {};
  const auto flags = static_cast<unsigned>(file[kRiff + kHead]);
  const std::size_t end = std::min<std::size_t>(
      file.size(), kHead + std::size_t{detail::load_le<std::uint32_t>(file.subspan(4))});
  std::span<const std::byte> exif, xmp;
  for (std::size_t at = kRiff; at + kHead <= end;) {
    const std::size_t size = detail::load_le<std::uint32_t>(file.subspan(at + 4));
    if (size > end - at - kHead) break;
    const std::string_view name = detail::text_of(file.subspan(at, 4));
    const auto data = file.subspan(at + kHead, size);
    if (name == "EXIF" && (flags & kHasExif) != 0 && exif.empty()) exif = data;
    if (name == "XMP " && (flags & kHasXmp) != 0 && xmp.empty()) xmp = data;
    at += kHead + size + size % 2;
  }
  return exif_orientation(exif, xmp);
}

}  // namespace

ImageSize WebpDecoder::open(std::span<const std::byte> bytes) {
  opened_ = false;
  WebPBitstreamFeatures found;
  const VP8StatusCode status = WebPGetFeatures(data_of(bytes), bytes.size(), &found);
  if (status != VP8_STATUS_OK) refuse(status);
  if (found.has_animation) detail::fail<IoError>("webp: must be a single image, but is an animation");
  size_ = {found.height, found.width};
  if (size_.height * size_.width > kMaxPixels) {
    detail::fail<IoError>("webp: image must have at most {} pixels, but is {}x{}", kMaxPixels, size_.width,
                          size_.height);
  }
  transparent_ = found.has_alpha != 0;
  bytes_ = bytes;
  orientation_ = orientation_in(bytes);
  opened_ = true;
  return size_;
}

ImageView WebpDecoder::decode(const Box& box) {
  ATH_CHECK(opened_ && holds(size_, box),
            "webp: box must lie in the opened image of {}x{}, but is {}x{} at ({}, {})", size_.height,
            size_.width, box.height, box.width, box.top, box.left);
  opened_ = false;
  const std::int64_t row = size_.width * (transparent_ ? 4 : 3), needed = row * size_.height;
  detail::make_room(pixels_, static_cast<std::size_t>(needed));
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config))
    detail::fail<BackendError>("webp: libwebp has another version than its headers");
  config.output.colorspace = transparent_ ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels_.data(), static_cast<int>(row), static_cast<std::size_t>(needed)};
  const VP8StatusCode status = WebPDecode(data_of(bytes_), bytes_.size(), &config);
  if (status != VP8_STATUS_OK) refuse(status);
  if (transparent_) detail::lay_over_white(std::span(pixels_).first(static_cast<std::size_t>(needed)));
  const std::int64_t stride = size_.width * 3;
  return {pixels_.data() + box.top * stride + box.left * 3, box.height, box.width, 3, stride};
}

}  // namespace athanor
