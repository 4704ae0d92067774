#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// One folder per class, JPEG files (.jpg, .jpeg, any case) in each; classes are the folders' names in byte
/// order. Each image is scaled, with its proportions kept, to cover height x width, and cropped to its
/// middle; grey images become RGB. Files are decoded at every read(). Throws IoError naming the file.
class ImageFolder final : public Dataset {
 public:
  ImageFolder(const std::filesystem::path& folder, std::int64_t height, std::int64_t width);

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  const ImageSpec& spec() const override { return spec_; }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;

  const std::vector<std::string>& class_names() const { return class_names_; }
  const std::filesystem::path& path(std::int64_t index) const {
    return samples_[static_cast<std::size_t>(index)].path;
  }

 private:
  struct Sample {
    std::filesystem::path path;
    std::int64_t label;
  };

  ImageSpec spec_;
  std::vector<std::string> class_names_;
  std::vector<Sample> samples_;
};

}  // namespace athanor
