#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

/// Maps a file of bare images [N, H, W, C] u8, NAME.bin; N >= 1 follows from its size. NAME.json beside it is
/// an object with "height" and "width", and optionally "channels" (default 1), "classes" (0: the largest
/// label
/// + 1), "offset" (0: bytes before the first image), "dtype" (only "u8"), "labels" (a file of bare labels
/// beside it, little-endian; none: every label is 0) and "label_dtype" ("u8", "i8", ... or "i64"). Throws
/// IoError.
std::unique_ptr<Dataset> open_raw(const std::filesystem::path& path);

/// Writes NAME.bin, NAME.labels.bin and NAME.json: raw images of one size. NAME.json contains `classes` (0:
/// omitted).
std::unique_ptr<SampleWriter> create_raw(const std::filesystem::path& path, std::int64_t classes = 0);

}  // namespace athanor
