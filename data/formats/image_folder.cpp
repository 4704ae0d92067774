#include "data/formats/image_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/formats/detail/image_files.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

/// Whether the folders are those of ImageFolderWriter that begin with the numbers of their classes.
bool are_numbered(const std::vector<std::string>& folders) {
  for (std::size_t i = 0; i < folders.size(); ++i)
    if (!folders[i].starts_with(fmt::format("{:05}", i))) return false;
  return true;
}

constexpr char kBeside[] = "images beside the folders of classes";  // detail::folders_among()

/// Why a folder has no samples.
std::string without_samples(const std::filesystem::path& folder, const std::vector<Unused>& unused) {
  const auto images =
      std::find_if(unused.begin(), unused.end(), [](const Unused& one) { return one.cause == kBeside; });
  if (images == unused.end()) return unused.empty() ? "is empty" : "has only " + text_of(unused);
  return fmt::format(
      "has no class folders, only {} images: move the images of each class into a folder of their own, as in "
      "{}",
      images->count, (folder / "cat" / images->names.front()).string());
}

}  // namespace

ImageFolder::ImageFolder(std::filesystem::path folder, const std::vector<Unused>& beside)
    : folder_(std::move(folder)) {
  const std::vector<std::string> classes = detail::folders_among(detail::names_in(folder_, "image folder"),
                                                                 folder_, "the folders of classes", unused_);
  const bool numbered = are_numbered(classes);
  for (const std::string& name : classes) add_class(name, numbered);
  if (samples_.empty()) {
    detail::fail<IoError>(
        "image folder: {} must contain one folder per class with .jpg, .jpeg, .png or .webp files, but {}",
        folder_.string(), without_samples(folder_, unused_));
  }
  add_unused(unused_, beside);
  spec_ = {0, 0, 0, std::ssize(class_names_)};
  open_folder();
}

ImageFolder::ImageFolder(std::filesystem::path folder, Unlabelled) : folder_(std::move(folder)) {
  detail::ImageFiles found = detail::find_images(folder_, "image folder");
  unused_ = std::move(found.unused);
  if (found.files.empty())
    detail::fail<IoError>("image folder: {} must contain .jpg, .jpeg, .png or .webp files, but {}",
                          folder_.string(), without_samples(folder_, unused_));
  for (const detail::ImageFiles::File& file : found.files) add_file("", file.name, file.codec);
  spec_.classes = 1;
  open_folder();
}

std::unique_ptr<ImageFolder> ImageFolder::unlabelled(std::filesystem::path folder) {
  return std::unique_ptr<ImageFolder>(new ImageFolder(std::move(folder), Unlabelled()));
}

void ImageFolder::open_folder() {
  directory_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_ < 0) {
    detail::fail<IoError>("image folder: {} must be a readable folder, but got: {}", folder_.string(),
                          std::strerror(errno));
  }
}

void ImageFolder::add_class(const std::string& name, bool may_be_empty) {
  detail::ImageFiles found = detail::find_images(folder_ / name, "image folder", name + '/');
  for (const Unused& one : found.unused) {
    if (one.cause != detail::kHeic || !found.files.empty()) continue;
    detail::fail<IoError>("image folder: {} is HEIC, and its class has no other images: {}",
                          (folder_ / one.names.front()).string(), detail::kHeicAdvice);
  }
  add_unused(unused_, std::move(found.unused));
  if (found.files.empty() && !may_be_empty) return count_unused(unused_, "folders without images", name);
  for (const detail::ImageFiles::File& file : found.files) add_file(name + '/', file.name, file.codec);
  class_names_.push_back(name);
}

/// As a sample of the next class.
void ImageFolder::add_file(const std::string& below, const std::string& name, Codec codec) {
  samples_.push_back({names_.size(), static_cast<std::int32_t>(class_names_.size()), codec});
  names_.insert(names_.end(), below.begin(), below.end());
  names_.insert(names_.end(), name.begin(), name.end());
  names_.push_back('\0');
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

std::uint64_t ImageFolder::sample_id(std::int64_t index) const {
  kernels::HashOf hash;
  hash.add(kernels::fnv1a(name(index)));
  hash.add(detail::file_id(name(index), directory_, size()));
  return hash.value();
}

std::optional<std::int64_t> ImageFolder::image_bytes(std::int64_t index) const {
  struct stat file {};
  return ::fstatat(directory_, name(index), &file, 0) == 0 ? std::optional(file.st_size) : std::nullopt;
}

StoredSample ImageFolder::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  const RegularFile file(name(index), directory_);
  const std::size_t bytes =
      detail::append_file(file, scratch, 0, "image folder", [&] { return where(index); });
  const Sample& sample = samples_[static_cast<std::size_t>(index)];
  return {.bytes = {scratch.data(), bytes}, .codec = sample.codec, .label = sample.label};
}

}  // namespace athanor
