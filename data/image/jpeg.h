#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace athanor {

/// An image of 3 bytes a pixel, row by row.
struct Rgb {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;
};

/// Decodes a JPEG file (colour or grey). Where the image is much larger than min_height x min_width, it is
/// decoded at a fraction of its size, which is faster, but at least at that. Throws IoError naming the file
/// when it is missing, damaged, cut short, of unsupported colours, or over 100 million pixels.
Rgb decode_jpeg(const std::filesystem::path& path, std::int64_t min_height, std::int64_t min_width);

}  // namespace athanor
