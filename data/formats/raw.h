#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

/// The description of a file of bare pixels.
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

/// Maps a file of bare images [N, H, W, C] u8; N >= 1 follows from its size. Without a height in `options`,
/// NAME.json next to NAME.bin gives them: an object with "height" and "width", and optionally "channels"
/// (default 1), "classes" (0), "offset" (0), "dtype" (only "u8"), "labels" (the name of a file next to it;
/// none) and "label_dtype" ("u8"). Throws IoError.
std::unique_ptr<Dataset> open_raw(const std::filesystem::path& path, const RawOptions& options = {});

/// Writes NAME.bin, NAME.labels.bin and NAME.json: raw images of one size. NAME.json contains `classes` (0:
/// omitted).
std::unique_ptr<SampleWriter> create_raw(const std::filesystem::path& path, std::int64_t classes = 0);

}  // namespace athanor
