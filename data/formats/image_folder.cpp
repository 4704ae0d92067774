#include "data/formats/image_folder.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "tensor/error.h"
#include "tensor/regular_file.h"

namespace athanor {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 30;

std::optional<Codec> codec_of(const std::string& name) {
  std::string suffix = name.substr(std::min(name.rfind('.'), name.size()));
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (suffix == ".jpg" || suffix == ".jpeg") return Codec::jpeg;
  if (suffix == ".png") return Codec::png;
  return std::nullopt;
}

std::vector<std::string> sorted_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) {
    detail::fail<IoError>("image folder: {} must be a readable folder, but got: {}", folder.string(),
                          error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

ImageFolder::ImageFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  for (const std::string& entry : sorted_names(folder_)) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder_ / entry, error)) continue;
    const auto label = static_cast<std::int32_t>(class_names_.size());
    class_names_.push_back(entry);
    for (const std::string& file : sorted_names(folder_ / entry)) {
      const std::optional<Codec> codec = codec_of(file);
      if (!codec) continue;
      samples_.push_back({names_.size(), label, *codec});
      names_.insert(names_.end(), entry.begin(), entry.end());
      names_.push_back('/');
      names_.insert(names_.end(), file.begin(), file.end());
      names_.push_back('\0');
    }
  }
  if (samples_.empty()) {
    detail::fail<IoError>(
        "image folder: {} must hold one folder per class with .jpg, .jpeg or .png files in it, but has {} "
        "folders and no such file",
        folder_.string(), class_names_.size());
  }
  spec_ = {0, 0, 0, std::ssize(class_names_)};
  directory_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_ < 0) {
    detail::fail<IoError>("image folder: {} must be a readable folder, but got: {}", folder_.string(),
                          std::strerror(errno));
  }
}

ImageFolder::~ImageFolder() {
  if (directory_ >= 0) ::close(directory_);
}

const char* ImageFolder::name(std::int64_t index) const {
  ATH_CHECK(index >= 0 && index < size(), "image folder: sample must be in [0, {}), but got {}", size(),
            index);
  return names_.data() + samples_[static_cast<std::size_t>(index)].name;
}

std::string ImageFolder::where(std::int64_t index) const {
  return (folder_ / name(index)).string();
}

void ImageFolder::fail(std::int64_t index, const std::string& message) const {
  detail::fail<IoError>("image folder: {}: {}", where(index), message);
}

StoredSample ImageFolder::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  const RegularFile file(name(index), directory_);
  if (!file.problem().empty()) fail(index, file.problem());
  const std::int64_t bytes = file.bytes();
  if (bytes > kMaxFileBytes) fail(index, fmt::format("must have at most 1 GiB, but has {} bytes", bytes));
  if (std::ssize(scratch) < bytes) scratch.resize(static_cast<std::size_t>(bytes));
  const auto got =
      static_cast<std::int64_t>(file.read_at(0, std::span(scratch).first(static_cast<std::size_t>(bytes))));
  if (got != bytes) {
    fail(index, errno != 0
                    ? fmt::format("offset {}: must be readable, but got: {}", got, std::strerror(errno))
                    : fmt::format("offset {}: must have {} bytes, but ends here", got, bytes));
  }
  const Sample& sample = samples_[static_cast<std::size_t>(index)];
  return {.bytes = {scratch.data(), static_cast<std::size_t>(bytes)},
          .codec = sample.codec,
          .label = sample.label};
}

}  // namespace athanor
