#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include "data/formats/detail/image_files.h"
#include "data/formats/detail/writing.h"
#include "data/formats/image_folder.h"
#include "data/image/png.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"

namespace athanor {
namespace {

constexpr std::int64_t kMaxClasses = 100'000, kMaxSamples = 100'000'000;

bool can_be_a_folder(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 200 && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

}  // namespace

ImageFolderWriter::ImageFolderWriter(const std::filesystem::path& folder,
                                     std::vector<std::string> class_names)
    : folder_(folder.has_filename() ? folder : folder.parent_path()),
      temporary_(unfinished_name(folder_, ".partial")),
      named_(!class_names.empty()),
      class_folders_(std::move(class_names)) {
  ATH_CHECK(std::ssize(class_folders_) <= kMaxClasses, "image folder: at most {} classes, but got {}",
            kMaxClasses, class_folders_.size());
  for (const std::string& name : class_folders_) {
    ATH_CHECK(can_be_a_folder(name),
              "image folder: a class's name must be able to be a folder's, but is '{}'", name);
  }
  std::vector<std::string> sorted = class_folders_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  ATH_CHECK(twice == sorted.end(), "image folder: names of classes must be unique, but '{}' is there twice",
            *twice);
  if (sorted != class_folders_) {
    for (std::size_t i = 0; i < class_folders_.size(); ++i) {
      class_folders_[i] = fmt::format("{:05}_{}", i, class_folders_[i]);
    }
  }
  std::error_code error;
  if (std::filesystem::exists(folder_, error)) {
    detail::fail<IoError>("image folder: {} must not exist yet: remove it, or choose another name",
                          folder_.string());
  }
  try {
    make_folder(temporary_);
    lock_ = lock_unfinished(temporary_);
    for (const std::string& name : class_folders_) make_folder(temporary_ / name);
  } catch (...) {
    std::filesystem::remove_all(temporary_, error);
    throw;
  }
}

ImageFolderWriter::~ImageFolderWriter() {
  std::error_code ignored;
  if (!finished_) std::filesystem::remove_all(temporary_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

void ImageFolderWriter::make_folder(const std::filesystem::path& path) const {
  std::error_code error;
  if (std::filesystem::create_directories(path, error)) return;
  fail(path, error ? error.message().c_str() : "it already exists");
}

void ImageFolderWriter::fail(const std::filesystem::path& path, const char* what) const {
  detail::fail<IoError>("image folder: cannot write {}: {}", path.string(), what);
}

void ImageFolderWriter::make_class(std::int64_t label) {
  const std::int64_t known = std::ssize(class_folders_);
  ATH_CHECK(label >= 0 && label < (named_ ? known : kMaxClasses),
            "image folder: label must be in [0, {}), but got {}", named_ ? known : kMaxClasses, label);
  // Classes without samples also get folders, as numbers are indices into their list.
  while (std::ssize(class_folders_) <= label) {
    class_folders_.push_back(fmt::format("{:05}", class_folders_.size()));
    make_folder(temporary_ / class_folders_.back());
  }
}

void ImageFolderWriter::add(const StoredSample& sample) {
  ATH_CHECK(count_ < kMaxSamples, "image folder: at most {} samples; write a packed file", kMaxSamples);
  detail::check_sample(sample, count_, "image folder");
  std::span<const std::byte> bytes = sample.bytes;
  const Codec codec = sample.codec == Codec::raw ? Codec::png : sample.codec;
  if (sample.codec == Codec::raw) {
    ATH_CHECK(sample.channels == 1 || sample.channels == 3,
              "image folder: raw samples must have 1 or 3 channels, but got {}; write a packed file",
              sample.channels);
    encode_png({reinterpret_cast<const std::uint8_t*>(bytes.data()), sample.height, sample.width,
                sample.channels, sample.width * sample.channels},
               encoded_);
    bytes = encoded_;
  }
  make_class(sample.label);
  const auto path = temporary_ / class_folders_[static_cast<std::size_t>(sample.label)] /
                    fmt::format("{:08}.{}", count_, detail::suffix_of(codec));
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  file.close();
  if (!file) fail(path, std::strerror(errno));
  ++count_;
}

void ImageFolderWriter::finish() {
  ATH_CHECK(!finished_ && count_ > 0, "image folder: finish() must be called once, after the samples");
  // A single flush for all files, then the rename.
  const int file = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool flushed = file >= 0 && ::syncfs(file) == 0;
  if (file >= 0) ::close(file);
  if (!flushed) fail(temporary_, std::strerror(errno));
  if (::rename(temporary_.c_str(), folder_.c_str()) != 0) fail(folder_, std::strerror(errno));
  finished_ = true;
  if (!flush_folder_of(folder_)) fail(folder_, std::strerror(errno));
}

}  // namespace athanor
