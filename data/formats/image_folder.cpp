#include "data/formats/image_folder.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "data/formats/detail/image_files.h"
#include "tensor/error.h"

namespace athanor {
ImageFolder::ImageFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  for (const std::string& entry : detail::sorted_names(folder_, "image folder")) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder_ / entry, error)) continue;
    const auto label = static_cast<std::int32_t>(class_names_.size());
    class_names_.push_back(entry);
    std::filesystem::path unread;
    const std::size_t before = samples_.size();
    for (const std::string& file : detail::sorted_names(folder_ / entry, "image folder")) {
      const std::optional<Codec> codec = detail::codec_named(file);
      if (!codec && detail::is_heic_named(file)) unread = folder_ / entry / file;
      if (!codec) continue;
      samples_.push_back({names_.size(), label, *codec});
      names_.insert(names_.end(), entry.begin(), entry.end());
      names_.push_back('/');
      names_.insert(names_.end(), file.begin(), file.end());
      names_.push_back('\0');
    }
    if (!unread.empty() && samples_.size() == before) {
      detail::fail<IoError>(
          "image folder: {} is HEIC, which Athanor cannot read, and its class has no other images: convert "
          "them to JPEG first: for f in {}/*/*.[hH][eE][iI][cC]; do heif-convert \"$f\" \"${{f%.*}}.jpg\"; "
          "done (package libheif-examples)",
          unread.string(), folder_.string());
    }
  }
  if (samples_.empty()) {
    detail::fail<IoError>(
        "image folder: {} must contain one folder per class with .jpg, .jpeg, .png or .webp files, but has "
        "{} folders and no such file",
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

StoredSample ImageFolder::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  const RegularFile file(name(index), directory_);
  const std::size_t bytes =
      detail::append_file(file, scratch, 0, "image folder", [&] { return where(index); });
  const Sample& sample = samples_[static_cast<std::size_t>(index)];
  return {.bytes = {scratch.data(), bytes}, .codec = sample.codec, .label = sample.label};
}

}  // namespace athanor
