#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

struct IdxOptions {
  /// The file of labels. Empty: next to the images, with "images" and "idx3" in the name replaced by "labels"
  /// and "idx1".
  std::filesystem::path labels = {};
  /// 0: the largest label + 1.
  std::int64_t classes = 0;
  /// The reader's name in messages.
  const char* format = "idx";
};

/// Reads a pair of IDX files, MNIST's format, plain or .gz (in memory): images [N, H, W] or
/// [N, H, W, C] u8 and labels [N] u8, i8, i16 or i32, N >= 1. Throws IoError naming file and offset.
/// Source: LeCun, Cortes and Burges, "The MNIST database", section "File formats".
std::unique_ptr<Dataset> open_idx(const std::filesystem::path& images, const IdxOptions& options = {});

/// Writes such a pair, plain: raw images of one size, without a fourth dimension if they have one channel;
/// labels as u8 if they fit, else i32.
std::unique_ptr<SampleWriter> create_idx(const std::filesystem::path& images);

}  // namespace athanor
