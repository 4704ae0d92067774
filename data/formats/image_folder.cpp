#include "data/formats/image_folder.h"

#include <algorithm>
#include <cctype>

#include "data/image/jpeg.h"
#include "data/image/resize.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr std::int64_t kRgb = 3, kMaxSide = 16384;

bool is_jpeg(const std::filesystem::path& path) {
  std::string suffix = path.extension().string();
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return suffix == ".jpg" || suffix == ".jpeg";
}

std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    paths.push_back(at->path());
  }
  if (error) {
    detail::fail<IoError>("image folder: {} must be a readable folder, but got: {}", folder.string(),
                          error.message());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

ImageFolder::ImageFolder(const std::filesystem::path& folder, std::int64_t height, std::int64_t width) {
  ATH_CHECK(height > 0 && width > 0 && height <= kMaxSide && width <= kMaxSide,
            "image folder: height and width must be in [1, {}], but got {}x{}", kMaxSide, height, width);
  for (const auto& entry : sorted_entries(folder)) {
    std::error_code error;
    if (!std::filesystem::is_directory(entry, error)) continue;
    const auto label = std::ssize(class_names_);
    class_names_.push_back(entry.filename().string());
    for (const auto& file : sorted_entries(entry)) {
      if (is_jpeg(file)) samples_.push_back({file, label});
    }
  }
  if (samples_.empty()) {
    detail::fail<IoError>(
        "image folder: {} must hold one folder per class with .jpg or .jpeg files in it, but has {} folders "
        "and no "
        "such file",
        folder.string(), class_names_.size());
  }
  spec_ = {height, width, kRgb, std::ssize(class_names_)};
}

std::int64_t ImageFolder::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  ATH_CHECK(index >= 0 && index < size() && std::ssize(pixels) == spec_.bytes(),
            "image folder: image {} of {} cannot be read into {} bytes, which must be {}", index, size(),
            pixels.size(), spec_.bytes());
  const Sample& sample = samples_[static_cast<std::size_t>(index)];
  const Rgb image = decode_jpeg(sample.path, spec_.height, spec_.width);
  resize_to_cover(image, spec_.height, spec_.width, pixels);
  return sample.label;
}

}  // namespace athanor
