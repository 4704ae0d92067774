#include "trainer/report/detail/html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "tensor/printable.h"
#include "trainer/readable.h"

namespace athanor {

// style.css and script.js, by cmake/embed.cmake
extern const unsigned char kReportStyle[], kReportScript[];
extern const std::size_t kReportStyleBytes, kReportScriptBytes;

namespace report {
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

/// Without libpng, so that programs that read no pictures need not link it. Source: PNG specification, W3C
/// 2003, section 5.
Bytes png_of(const Bytes& rows, std::uint32_t height, std::uint32_t width, std::int64_t channels) {
  Bytes png{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, header;
  append_u32(header, width);
  append_u32(header, height);
  for (const int value : {8, channels == 3 ? 2 : 0, 0, 0, 0})
    header.push_back(static_cast<std::uint8_t>(value));
  append_chunk(png, "IHDR", header);
  uLongf size = compressBound(rows.size());
  Bytes packed(size);
  compress(packed.data(), &size, rows.data(), rows.size());
  packed.resize(size);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", {});
  return png;
}

std::string base64_of(const Bytes& bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) { return i + k < bytes.size() ? bytes[i + k] : 0U; };
    const unsigned group = at(0) << 16 | at(1) << 8 | at(2);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

std::string_view embedded(const unsigned char* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string all;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': all += "&amp;"; break;
      case '<': all += "&lt;"; break;
      case '>': all += "&gt;"; break;
      case '"': all += "&quot;"; break;
      default: all += c;
    }
  }
  return all;
}

std::string figure(double value, Format format) {
  if (!std::isfinite(value)) return "-";
  switch (format) {
    case Format::share: return fmt::format("{:.2f} %", 100 * value);
    case Format::seconds: return value < 0.1 ? fmt::format("{:.3g} ms", 1000 * value) : duration(value);
    case Format::bytes: return byte_size(value);
    case Format::count:
      if (std::abs(value) < 1e18 && (value == std::floor(value) || std::abs(value) >= 1000))
        return with_commas(std::llround(value));
      return fmt::format("{:.3g}", value);
    case Format::plain: break;
  }
  return std::abs(value) >= 1e4 && std::abs(value) < 1e9 ? with_commas(std::llround(value))
                                                         : fmt::format("{:.4g}", value);
}

std::string picture_url(std::span<const std::uint8_t> pixels, std::int64_t height, std::int64_t width,
                        std::int64_t channels) {
  constexpr std::int64_t kMax = 128;
  const std::int64_t stride = (std::max(height, width) + kMax - 1) / kMax;
  const std::int64_t rows = (height + stride - 1) / stride, columns = (width + stride - 1) / stride;
  Bytes packed;
  for (std::int64_t y = 0; y < rows; ++y) {
    packed.push_back(0);  // the row without a filter
    for (std::int64_t x = 0; x < columns; ++x) {
      const auto* from = pixels.data() + (y * stride * width + x * stride) * channels;
      packed.insert(packed.end(), from, from + channels);
    }
  }
  return "data:image/png;base64," + base64_of(png_of(packed, static_cast<std::uint32_t>(rows),
                                                     static_cast<std::uint32_t>(columns), channels));
}

std::string whole_page(const std::string& title, const std::string& body, const std::string& carried) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{}{}<script>\n{}</script>\n</body>\n</"
      "html>\n",
      escaped(title), embedded(kReportStyle, kReportStyleBytes), body, carried,
      embedded(kReportScript, kReportScriptBytes));
}

}  // namespace report
}  // namespace athanor
