#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

/// What a file of bare pixels does not say itself.
struct RawOptions {
  std::int64_t height = 0, width = 0, channels = 0;
  /// 0: the largest label + 1.
  std::int64_t classes = 0;
  /// Bytes before the first image.
  std::int64_t offset = 0;
  /// A file of bare labels, little-endian. Empty: every label is 0.
  std::filesystem::path labels = {};
  /// u8, i8, u16, i16, u32, i32, u64 or i64.
  std::string label_dtype = "u8";
};

/// Maps a file of bare images [N, H, W, C] u8, N >= 1 following from its size. Without a height in `options`
/// they are read from NAME.json beside NAME.bin, an object with "height", "width" and, where they are not 1,
/// 0, 0, "u8", none and "u8": "channels", "classes", "offset", "dtype" ("u8" only), "labels" (the name of a
/// file beside it) and "label_dtype". Throws IoError.
std::unique_ptr<Dataset> open_raw(const std::filesystem::path& path, const RawOptions& options = {});

/// Writes NAME.bin, NAME.labels.bin and NAME.json: raw images of one size. `classes` (0: not stated) goes
/// into NAME.json.
std::unique_ptr<SampleWriter> create_raw(const std::filesystem::path& path, std::int64_t classes = 0);

}  // namespace athanor
