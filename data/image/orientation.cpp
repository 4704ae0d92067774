#include "data/image/orientation.h"

#include <algorithm>
#include <array>
#include <bit>
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
Orientation orientation_of(std::size_t value) {
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

}  // namespace

Orientation exif_orientation(std::span<const std::byte> app1) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr std::size_t kEntry = 12, kTag = 0x0112, kShort = 3;
  if (!detail::text_of(app1).starts_with(kExif)) return {};
  const Bytes tiff = app1.subspan(kExif.size());
  const std::string_view marks = detail::text_of(tiff).substr(0, 2);
  if (marks != "II" && marks != "MM") return {};
  const std::endian order = marks == "II" ? std::endian::little : std::endian::big;
  if (number<std::uint16_t>(tiff, 2, order) != 42) return {};
  const std::size_t directory = number<std::uint32_t>(tiff, 4, order);
  const std::size_t entries = number<std::uint16_t>(tiff, directory, order);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = directory + 2 + i * kEntry;
    if (number<std::uint16_t>(tiff, at, order) != kTag) continue;
    const bool one_short = number<std::uint16_t>(tiff, at + 2, order) == kShort &&
                           number<std::uint32_t>(tiff, at + 4, order) == 1;
    return one_short ? orientation_of(number<std::uint16_t>(tiff, at + 8, order)) : Orientation();
  }
  return {};
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
