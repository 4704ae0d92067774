#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include "tensor/philox.h"

// JPEG and PNG files of every kind, made by the libraries themselves, and the whole image as they decode it.

namespace athanor::test {

struct Pixels {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> bytes;

  const std::uint8_t* at(std::int64_t y, std::int64_t x) const {
    return bytes.data() + (y * width + x) * channels;
  }
};

/// Smooth shapes with some noise, different in every channel.
inline Pixels photo(std::int64_t height, std::int64_t width, std::int64_t channels, std::uint64_t seed = 1) {
  Pixels image{height, width, channels, {}};
  std::uint64_t i = 0;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double wave = std::sin(0.11 * double(x) * double(c + 1) + 0.7 * double(seed)) *
                            std::cos(0.07 * double(y) * double(4 - c));
        const double noise = double(philox_word({seed, 9}, i++) % 40) - 20;
        image.bytes.push_back(static_cast<std::uint8_t>(std::lround(127 + 100 * wave + noise)));
      }
    }
  }
  return image;
}

/// How a JPEG file is made.
struct JpegKind {
  const char* name = "4:2:0";
  J_COLOR_SPACE in = JCS_RGB, stored = JCS_YCbCr;
  int horizontal = 2, vertical = 2;  // samples of the first component for one of the others
  bool progressive = false;
  int restart_rows = 0;
  int quality = 90;
  bool no_marker = false;     // of Adobe's, which says what inks are
  bool exact_passes = false;  // progressive, and no pass makes another one finer
};

inline std::string jpeg_file(const Pixels& image, const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = kind.in;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, kind.stored);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (kind.no_marker) info.write_Adobe_marker = FALSE;
  info.restart_in_rows = kind.restart_rows;
  for (int c = 0; c < info.num_components; ++c) {
    const bool full = c == 0 || c == 3;
    info.comp_info[c].h_samp_factor = full ? kind.horizontal : 1;
    info.comp_info[c].v_samp_factor = full ? kind.vertical : 1;
  }
  if (kind.progressive) jpeg_simple_progression(&info);
  const jpeg_scan_info passes[] = {
      {3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 0}, {1, {1}, 1, 63, 0, 0}, {1, {2}, 1, 63, 0, 0}};
  if (kind.exact_passes) {
    info.scan_info = passes;
    info.num_scans = 4;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.at(info.next_scanline, 0));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return file;
}

/// The file with EXIF data behind its first marker that says how to hold the image: 1 to 8.
inline std::string with_orientation(const std::string& jpeg, int value, bool big_endian = false) {
  const auto number = [&](std::size_t bytes, std::uint32_t n) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) {
      text += static_cast<char>(n >> 8 * (big_endian ? bytes - 1 - i : i));
    }
    return text;
  };
  // Two entries: a camera's name comes before.
  std::string exif = std::string("Exif\0\0", 6) + (big_endian ? "MM" : "II") + number(2, 42) + number(4, 8);
  exif += number(2, 2) + number(2, 0x0110) + number(2, 2) + number(4, 3) + std::string("us\0\0", 4);
  exif += number(2, 0x0112) + number(2, 3) + number(4, 1) + number(2, static_cast<std::uint32_t>(value));
  exif += number(2, 0) + number(4, 0);
  const std::size_t length = exif.size() + 2;
  const std::string head = {'\xff', '\xe1', static_cast<char>(length >> 8), static_cast<char>(length)};
  return jpeg.substr(0, 2) + head + exif + jpeg.substr(2);
}

/// The PNG file with another chunk, before its pixels or after them.
inline std::string with_chunk(const std::string& png, const std::string& type, const std::string& data,
                              bool after_pixels = false) {
  const auto big_endian = [](std::size_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                       static_cast<char>(n)};
  };
  const std::string body = type + data;
  const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  const std::string chunk = big_endian(data.size()) + body + big_endian(checksum);
  std::string file = png;
  return file.insert(after_pixels ? file.size() - 12 : 8 + 25, chunk);  // around: signature and IHDR, IEND
}

/// All of a JPEG image, the plain way. Ends the program on damaged files.
inline Pixels decode_whole(std::span<const std::byte> file, int reduce = 1) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()),
               static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  info.scale_denom = static_cast<unsigned>(reduce);
  jpeg_start_decompress(&info);
  Pixels image{info.output_height, info.output_width, 3, {}};
  image.bytes.resize(static_cast<std::size_t>(image.height * image.width * 3));
  while (info.output_scanline < info.output_height) {
    auto* row = const_cast<JSAMPROW>(image.at(info.output_scanline, 0));
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_destroy_decompress(&info);
  return image;
}

/// A PNG file of rows as they are packed in it: `type` is one of PNG_COLOR_TYPE_*.
inline std::string png_file(std::int64_t height, std::int64_t width, int type, int bits, bool interlaced,
                            const std::vector<std::vector<std::uint8_t>>& rows,
                            const std::vector<png_color>& palette = {}) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp self, png_bytep bytes, std::size_t count) {
        static_cast<std::string*>(png_get_io_ptr(self))->append(reinterpret_cast<char*>(bytes), count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), bits, type,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  for (const auto& row : rows) pointers.push_back(const_cast<png_bytep>(row.data()));
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

inline std::span<const std::byte> bytes_of(const std::string& file) {
  return {reinterpret_cast<const std::byte*>(file.data()), file.size()};
}

}  // namespace athanor::test
