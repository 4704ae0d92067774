#include "data/image/decoder.h"

#include <algorithm>
#include <string>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "tensor/io/file_kind.h"

namespace athanor {
namespace {

/// "a GIF", "text", or the first bytes.
std::string kind_of(std::span<const std::byte> file) {
  constexpr std::size_t kLooked = 512;
  const std::string_view head = detail::text_of(file.first(std::min(file.size(), kLooked)));
  if (std::string kind = file_kind(head); !kind.empty()) return kind;
  if (std::all_of(file.begin(), file.end(), [](std::byte byte) { return byte == std::byte{0}; }))
    return fmt::format("{} zero bytes", file.size());
  std::string bytes;
  for (const unsigned char c : head.substr(0, 4)) bytes += fmt::format(" {:02x}", c);
  return "an unknown kind of file, which begins with" + bytes;
}

}  // namespace

ImageSize ImageDecoder::open(std::span<const std::byte> bytes) {
  size_ = {};
  if (PngDecoder::recognises(bytes)) {
    codec_ = Codec::png;
    return size_ = in_memory([&] { return png_.open(bytes); });
  }
  if (WebpDecoder::recognises(bytes)) {
    codec_ = Codec::webp;
    return size_ = in_memory([&] { return webp_.open(bytes); });
  }
  codec_ = Codec::jpeg;
  if (detail::text_of(bytes).starts_with("\xff\xd8"))
    return size_ = in_memory([&] { return jpeg_.open(bytes); });
  const std::string kind = kind_of(bytes);
  detail::fail<IoError>("image: must be a JPEG, PNG or WebP, but is {}{}{}", kind, kind == "HEIC" ? ": " : "",
                        kind == "HEIC" ? detail::kHeicAdvice : "");
}

}  // namespace athanor
