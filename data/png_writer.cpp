// PNG files, without libpng: programs that read no pictures need not link it.
// Source: PNG specification, W3C 2003, sections 5 (chunks) and 9 (filters).

#include <cstdlib>
#include <numeric>
#include <span>
#include <string_view>

#include <zlib.h>

#include "data/image/png.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using Bytes = std::vector<std::uint8_t>;

void append_u32(Bytes& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<std::uint8_t>(value >> shift));
}

void append_chunk(Bytes& png, std::string_view type, const Bytes& data) {
  append_u32(png, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = png.size();
  png.insert(png.end(), type.begin(), type.end());
  png.insert(png.end(), data.begin(), data.end());
  append_u32(png,
             static_cast<std::uint32_t>(crc32(0, png.data() + begin, static_cast<uInt>(png.size() - begin))));
}

int paeth(int left, int above, int corner) {
  const int guess = left + above - corner;
  const int to_left = std::abs(guess - left), to_above = std::abs(guess - above),
            to_corner = std::abs(guess - corner);
  return to_left <= to_above && to_left <= to_corner ? left : to_above <= to_corner ? above : corner;
}

int predicted(std::uint8_t filter, int left, int above, int corner) {
  switch (filter) {
    case 1: return left;
    case 2: return above;
    case 3: return (left + above) / 2;
    case 4: return paeth(left, above, corner);
    default: return 0;
  }
}

/// The number of a filter, then the differences of a row from what it predicts.
Bytes filtered(std::uint8_t filter, const Bytes& row, const Bytes& above, std::size_t channels) {
  Bytes out{filter};
  out.reserve(row.size() + 1);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const int left = i < channels ? 0 : row[i - channels], corner = i < channels ? 0 : above[i - channels];
    out.push_back(static_cast<std::uint8_t>(row[i] - predicted(filter, left, above[i], corner)));
  }
  return out;
}

/// The sum of differences as signed bytes: small ones compress well.
std::int64_t cost(const Bytes& row) {
  return std::accumulate(
      row.begin() + 1, row.end(), std::int64_t{0},
      [](std::int64_t sum, std::uint8_t byte) { return sum + std::abs(static_cast<std::int8_t>(byte)); });
}

}  // namespace

void encode_png(const ImageView& image, std::vector<std::byte>& out) {
  ATH_CHECK((image.channels == 1 || image.channels == 3) && image.height > 0 && image.width > 0,
            "png: image must have 1 or 3 channels and at least one pixel, but is {}x{}x{}", image.height,
            image.width, image.channels);
  const auto channels = static_cast<std::size_t>(image.channels);
  Bytes above(static_cast<std::size_t>(image.width) * channels), rows;
  for (std::int64_t y = 0; y < image.height; ++y) {
    const Bytes row(image.row(y), image.row(y) + above.size());
    Bytes best = filtered(0, row, above, channels);
    for (std::uint8_t filter = 1; filter < 5; ++filter) {
      Bytes other = filtered(filter, row, above, channels);
      if (cost(other) < cost(best)) best = std::move(other);
    }
    rows.insert(rows.end(), best.begin(), best.end());
    above = row;
  }
  uLongf size = compressBound(rows.size());
  Bytes packed(size);
  if (compress(packed.data(), &size, rows.data(), rows.size()) != Z_OK)
    detail::fail<BackendError>("png: zlib cannot compress {} bytes", rows.size());
  packed.resize(size);

  Bytes png{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, header;
  append_u32(header, static_cast<std::uint32_t>(image.width));
  append_u32(header, static_cast<std::uint32_t>(image.height));
  const std::uint8_t colour_type = channels == 3 ? 2 : 0;
  header.insert(header.end(), {8, colour_type, 0, 0, 0});  // bits per channel
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", {});
  const auto bytes = std::as_bytes(std::span(png));
  out.assign(bytes.begin(), bytes.end());
}

}  // namespace athanor
