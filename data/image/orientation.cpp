#include "data/image/orientation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>

#include "data/formats/detail/bytes.h"

namespace athanor {
namespace {

using Bytes = std::span<const std::byte>;

/// The number at `offset` in `bytes`, or 0 beyond their end.
template <class T> std::size_t number(Bytes bytes, std::size_t offset, std::endian order) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return 0;
  return detail::load<T>(bytes.subspan(offset), order);
}

/// The meaning of the tag's values 1 to 8.
Orientation orientation_of(std::uint64_t value) {
  constexpr std::array<Orientation, 9> kMeanings{{{},
                                                  {false, false, false},
                                                  {false, false, true},
                                                  {false, true, true},
                                                  {false, true, false},
                                                  {true, false, false},
                                                  {true, true, false},
                                                  {true, true, true},
                                                  {true, false, true}}};
  return value < kMeanings.size() ? kMeanings[value] : Orientation();
}

/// Bytes of a TIFF value, by its type; 0: there is no such type.
std::size_t bytes_of_type(std::size_t type) {
  constexpr std::array<std::uint8_t, 17> kBytes{0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
  return type < kBytes.size() ? kBytes[type] : 0;
}

/// The first of a tag's values; 0, which is no orientation, if they are not whole numbers.
std::uint64_t first_number(Bytes values, std::size_t type, std::endian order) {
  switch (type) {
    case 6: return number<std::uint8_t>(values, 0, order);
    case 3:
    case 8: return number<std::uint16_t>(values, 0, order);
    case 4:
    case 9:
    case 13: return number<std::uint32_t>(values, 0, order);
    case 16: return number<std::uint64_t>(values, 0, order);
    default: return 0;
  }
}

/// Tag 0x0112 of a TIFF block. The last one counts; entries after one whose values are beyond the end do not.
std::optional<std::uint64_t> orientation_tag(Bytes tiff) {
  constexpr std::size_t kEntry = 12, kTag = 0x0112;
  const std::string_view marks = detail::text_of(tiff).substr(0, 2);
  if (marks != "II" && marks != "MM") return std::nullopt;
  const std::endian order = marks == "II" ? std::endian::little : std::endian::big;
  const std::size_t magic = number<std::uint16_t>(tiff, 2, order);
  if (magic != 42 && magic != 42 << 8) return std::nullopt;  // some programs swap its bytes
  const std::size_t directory = number<std::uint32_t>(tiff, 4, order);
  const std::size_t entries = number<std::uint16_t>(tiff, directory, order);
  std::optional<std::uint64_t> found;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = directory + 2 + i * kEntry;
    if (at + kEntry > tiff.size()) break;
    const std::size_t type = number<std::uint16_t>(tiff, at + 2, order);
    const std::size_t bytes = bytes_of_type(type) * number<std::uint32_t>(tiff, at + 4, order);
    if (bytes == 0) continue;
    const std::size_t from = bytes <= 4 ? at + 8 : number<std::uint32_t>(tiff, at + 8, order);
    if (from > tiff.size() || tiff.size() - from < bytes) break;
    if (number<std::uint16_t>(tiff, at, order) != kTag) continue;
    found = first_number(tiff.subspan(from, bytes), type, order);
  }
  return found;
}

/// The digit in tiff:Orientation="6" or <tiff:Orientation>6.
std::optional<std::uint64_t> xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = 0; (at = xmp.find(kName, at)) != xmp.npos;) {
    at += kName.size();
    std::string_view rest = xmp.substr(at);
    const std::size_t mark = rest.starts_with("=\"") ? 2 : rest.starts_with(">") ? 1 : 0;
    rest.remove_prefix(mark);
    if (mark > 0 && !rest.empty() && rest[0] >= '0' && rest[0] <= '9')
      return static_cast<std::uint64_t>(rest[0] - '0');
  }
  return std::nullopt;
}

}  // namespace

Orientation exif_orientation(std::span<const std::byte> exif, std::span<const std::byte> xmp) {
  while (detail::text_of(exif).starts_with(kExifMark)) exif = exif.subspan(kExifMark.size());
  std::optional<std::uint64_t> value = orientation_tag(exif);
  if (!value) value = xmp_orientation(detail::text_of(xmp));
  return orientation_of(value.value_or(1));
}

void turn(const ImageView& stored, const Orientation& orientation, std::uint8_t* out) {
  const ImageSize size = orientation.turned({stored.height, stored.width});
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width; ++x) {
      std::int64_t row = orientation.transposed ? x : y, column = orientation.transposed ? y : x;
      if (orientation.rows_flipped) row = stored.height - 1 - row;
      if (orientation.columns_flipped) column = stored.width - 1 - column;
      out = std::copy_n(stored.row(row) + column * stored.channels, stored.channels, out);
    }
  }
}

}  // namespace athanor
