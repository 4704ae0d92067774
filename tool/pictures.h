#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/image/transform.h"
#include "trainer/model_file.h"

namespace athanor::tool {

/// The files that arguments name, in their order: files themselves; of a folder, all that are called like
/// JPEG or PNG images, at any depth, sorted; "-": the lines of standard input. Throws IoError where a folder
/// cannot be read.
std::vector<std::filesystem::path> pictures_of(const std::vector<std::string>& arguments);

/// Reads pictures as a model was shown those it was evaluated on. For one thread.
class PictureReader {
 public:
  explicit PictureReader(const ModelInfo& info);

  /// Bytes of one image.
  std::int64_t bytes() const { return info_.images.bytes(); }
  /// Writes the pixels of a JPEG or PNG [H, W, C] to `pixels`; for a model of one channel, its luma. Throws
  /// IoError that names the file.
  void read(const std::filesystem::path& file, std::span<std::uint8_t> pixels);

 private:
  const ModelInfo& info_;
  ImageTransform transform_;
  ImageReader reader_;
  std::vector<std::uint8_t> rgb_;
};

}  // namespace athanor::tool
