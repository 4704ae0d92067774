#include "data/image/detail/png_metadata.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <zlib.h>

#include "data/formats/detail/bytes.h"

namespace athanor::detail {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kMaxText = std::size_t{1} << 20;  // inflated; more is no metadata of a camera

/// Splits `text` at its first `end`: returns what is before, and leaves what is after.
std::string_view take_until(char end, std::string_view& text) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return before;
}

std::string inflated(std::string_view text) {
  std::string out(kMaxText, '\0');
  uLongf size = kMaxText;
  const auto* from = reinterpret_cast<const Bytef*>(text.data());
  const int result = uncompress(reinterpret_cast<Bytef*>(out.data()), &size, from, text.size());
  out.resize(result == Z_OK ? size : 0);
  return out;
}

/// The text of a tEXt, zTXt or iTXt chunk, without its keyword.
std::string text_in(std::string_view type, std::string_view rest) {
  bool compressed = type == "zTXt";
  if (compressed) rest.remove_prefix(std::min<std::size_t>(1, rest.size()));
  if (type == "iTXt") {
    compressed = !rest.empty() && rest[0] != '\0';
    rest.remove_prefix(std::min<std::size_t>(2, rest.size()));
    take_until('\0', rest);  // the language
    take_until('\0', rest);  // the translated keyword
  }
  return compressed ? inflated(rest) : std::string(rest);
}

/// The bytes of a "Raw profile": three lines, the last of which is their number, then their digits.
std::string raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) take_until('\n', text);
  std::string bytes;
  int digits = 0, value = 0;
  for (const char c : text) {
    if (c == '\n' || c == ' ') continue;
    const std::size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) break;
    value = (value << 4 | static_cast<int>(digit % 16)) & 0xff;
    if (++digits % 2 == 0) bytes += static_cast<char>(value);
  }
  return bytes;
}

bool has_its_checksum(Bytes type_and_data, std::uint32_t checksum) {
  return crc32(0, reinterpret_cast<const Bytef*>(type_and_data.data()),
               static_cast<uInt>(type_and_data.size())) == checksum;
}

}  // namespace

Orientation png_orientation(std::span<const std::byte> file) {
  constexpr std::size_t kSignature = 8, kAround = 12;  // bytes of a chunk besides its data
  std::optional<Bytes> exif;
  struct Text {
    std::string_view type, rest;
  };
  Text raw, xmp;  // of several, the last one counts: inflating all would take a hostile file's time
  for (std::size_t at = kSignature; at + kAround <= file.size();) {
    const std::size_t length = load_be<std::uint32_t>(file.subspan(at));
    if (length > file.size() - at - kAround) break;
    const std::string_view type = text_of(file.subspan(at + 4, 4));
    const Bytes data = file.subspan(at + 8, length);
    const bool is_text = type == "tEXt" || type == "zTXt" || type == "iTXt";
    if ((type == "eXIf" || is_text) &&
        has_its_checksum(file.subspan(at + 4, 4 + length),
                         load_be<std::uint32_t>(file.subspan(at + 8 + length)))) {
      std::string_view rest = text_of(data);
      if (!is_text) {
        exif = data;
      } else if (const std::string_view keyword = take_until('\0', rest); keyword == "XML:com.adobe.xmp") {
        xmp = {type, rest};
      } else if (keyword == "Raw profile type exif") {
        raw = {type, rest};
      }
    }
    at += kAround + length;
  }
  const std::string profile = raw_profile(text_in(raw.type, raw.rest)), text = text_in(xmp.type, xmp.rest);
  return exif_orientation(exif.value_or(bytes_of(profile)), bytes_of(text));
}

}  // namespace athanor::detail
