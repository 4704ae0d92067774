#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

/// One folder per class, with JPEG (.jpg, .jpeg, .jpe, .jfif), PNG and WebP files (any case), also in
/// sub-folders; unused() counts what else there is. Classes are the folder names in byte order; samples are
/// ordered by class, then by file name in byte order. A folder without images is no class, unless all folders
/// begin with their numbers (00000_ant, 00001_bee, ...), as ImageFolderWriter makes them. Constructor and
/// fetch() throw IoError naming the file or folder.
class ImageFolder final : public Dataset {
 public:
  /// `beside`: what is not used around the folder, for unused().
  explicit ImageFolder(std::filesystem::path folder, const std::vector<Unused>& beside = {});
  /// All images below a folder, without classes: each label is 0. For what needs no labels, such as
  /// calibration.
  static std::unique_ptr<ImageFolder> unlabelled(std::filesystem::path folder);
  ~ImageFolder() override;

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  /// Reads the file into `scratch`, which grows to the largest file and keeps its size.
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::vector<Unused> unused() const override { return unused_; }
  std::uint64_t sample_id(std::int64_t index) const override;  ///< from its name and file_id()
  std::optional<std::int64_t> image_bytes(std::int64_t index) const override;
  std::string where(std::int64_t index) const override;
  /// The label of a sample, without reading its file.
  std::int64_t label(std::int64_t index) const override {
    return samples_.at(static_cast<std::size_t>(index)).label;
  }

 private:
  struct Sample {
    std::uint64_t name;  // offset of "class/file" in names_
    std::int32_t label;
    Codec codec;
  };

  struct Unlabelled {};
  ImageFolder(std::filesystem::path folder, Unlabelled);
  void add_class(const std::string& name, bool may_be_empty);
  void add_file(const std::string& below, const std::string& name, Codec codec);
  void open_folder();
  const char* name(std::int64_t index) const;

  std::filesystem::path folder_;
  int directory_ = -1;  // the folder that names are relative to
  ImageSpec spec_;
  std::vector<std::string> class_names_;
  std::vector<Unused> unused_;
  std::vector<Sample> samples_;
  std::vector<char> names_;  // each ends with 0: a million separate paths would take half a gigabyte
};

/// Writes a folder for ImageFolder: CLASS/00000012.jpg, numbered in order of arrival. (ImageFolder reads
/// class by class, so the order may change; class and pixels do not.) Class folders have the given names,
/// prefixed with their number if those are not in byte order; without names, the number. Raw samples of 1 or
/// 3 channels become PNG, without loss.
class ImageFolderWriter final : public SampleWriter {
 public:
  /// `folder` must not exist: it appears, complete, at finish(). Throws ArgumentError on a name that is a
  /// duplicate or no valid folder name, and IoError.
  explicit ImageFolderWriter(const std::filesystem::path& folder, std::vector<std::string> class_names = {});
  ~ImageFolderWriter() override;

  void add(const StoredSample& sample) override;
  void finish() override;

 private:
  void make_class(std::int64_t label);
  void make_folder(const std::filesystem::path& path) const;
  [[noreturn]] void fail(const std::filesystem::path& path, const char* what) const;

  std::filesystem::path folder_, temporary_;
  bool named_;
  std::vector<std::string> class_folders_;  // created so far, or all if they have names
  std::int64_t count_ = 0;
  std::vector<std::byte> encoded_;
  int lock_ = -1;  // of the temporary folder
  bool finished_ = false;
};

}  // namespace athanor
