#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <png.h>

#include "data/image/png.h"
#include "tests/support/image_files.h"
#include "tests/support/temp_dir.h"

// A table of photos with masks, targets and numbers, in files. Whoever includes it links libpng.

namespace athanor::test {

inline std::string png_of(const Pixels& image) {
  std::vector<std::byte> file;
  encode_png({image.bytes.data(), image.height, image.width, image.channels, image.width * image.channels},
             file);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

/// A PNG of a palette, in which class c is stored as index c, and shown in other colours.
inline std::string palette_png(const Pixels& classes) {
  std::vector<std::uint8_t> colours(256 * 3);
  for (std::size_t i = 0; i < colours.size(); ++i) colours[i] = static_cast<std::uint8_t>(255 - 5 * i);
  png_image file{};
  file.version = PNG_IMAGE_VERSION;
  file.height = static_cast<png_uint_32>(classes.height);
  file.width = static_cast<png_uint_32>(classes.width);
  file.format = PNG_FORMAT_RGB_COLORMAP;
  file.colormap_entries = 256;
  std::string bytes(1 << 16, '\0');
  png_alloc_size_t size = bytes.size();
  EXPECT_NE(png_image_write_to_memory(&file, bytes.data(), &size, 0, classes.bytes.data(), 0, colours.data()),
            0);
  bytes.resize(size);
  return bytes;
}

inline constexpr std::int64_t kCount = 7;

inline Pixels mask_of(std::int64_t i, std::int64_t height, std::int64_t width) {
  Pixels mask{height, width, 1, {}};
  for (std::int64_t p = 0; p < height * width; ++p)
    mask.bytes.push_back(static_cast<std::uint8_t>((p / width / 3 + p % width / 4 + i) % 200));
  return mask;
}

/// A table of photos, targets that are the same photos, masks (every other one of a palette) and numbers.
inline std::filesystem::path write_table(const TempDir& folder) {
  std::string csv = "image,clean,mask,box.0:boxes,box.1,box.2,box.3,weight,label\r\n";
  for (std::int64_t i = 0; i < kCount; ++i) {
    const Pixels image = photo(40 + 3 * i, 50 - 2 * i, 3, static_cast<std::uint64_t>(i));
    const Pixels mask = mask_of(i, image.height, image.width);
    write_file(folder / fmt::format("photos/{}.png", i), png_of(image));
    write_file(folder / fmt::format("masks/{}.png", i), i % 2 == 0 ? palette_png(mask) : png_of(mask));
    csv += fmt::format("photos/{0}.png,\"photos/{0}.png\",masks/{0}.png,1,2,{1},{2},{0}.5,{3}\n", i,
                       image.width, image.height, i % 3 == 0 ? "cat" : "\"a \"\"dog\"\"\"");
  }
  write_file(folder / "train.csv", csv);
  return folder / "train.csv";
}

}  // namespace athanor::test
