#pragma once

#include <bit>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/formats/detail/file_bytes.h"

// Shared by readers: checks of shapes and labels, and samples stored in pieces of a file.

namespace athanor::detail {

/// Upper bound of labels, so that class counts cannot overflow and damaged labels are detected.
inline constexpr std::int64_t kMaxClasses = std::int64_t{1} << 31;
inline constexpr std::int64_t kMaxImageBytes = std::int64_t{1} << 30;

/// The problem of an image's shape, if any.
std::optional<std::string> bad_image(const ImageSpec& shape);
/// For images whose channels come first, as in PyTorch: that they do, and how to convert them.
std::optional<std::string> channels_first(const ImageSpec& shape);
/// Whether an image may have that shape, and has that many bytes.
bool fits_shape(const ImageSpec& shape, std::int64_t bytes);
/// The same of a raw sample.
bool fits_shape(const StoredSample& sample);
/// The problem of `label`, if any; `classes` 0: not stated.
std::optional<std::string> bad_label(std::int64_t label, std::int64_t classes = 0);
/// The largest label + 1.
std::int64_t count_classes(const std::vector<std::int64_t>& labels);
/// Throws ArgumentError unless `classes` is 0 (not stated) or a valid count of classes.
void check_classes(std::int64_t classes, const char* format);
/// Throws ArgumentError if `index` is not in [0, size).
void check_index(std::int64_t index, std::int64_t size, const char* format);

/// The representation of integers in a file.
struct IntType {
  int bytes = 1;  ///< 1, 2, 4 or 8
  bool is_signed = false;
  std::endian order = std::endian::little;
};
/// "u8", "i16", ..., or nullopt for any other name. Little-endian.
std::optional<IntType> int_type(std::string_view name);
/// The smallest of u8, u16 and i32 that holds all of `labels`, which are below kMaxClasses.
IntType smallest_type(const std::vector<std::int64_t>& labels);
std::string name_of(const IntType& type);
/// `count` labels from `offset` on. Throws IoError if the file ends earlier, or at the first label outside
/// [0, classes) (with classes = 0: [0, kMaxClasses)).
std::vector<std::int64_t> read_labels(const FileBytes& file, std::int64_t offset, std::int64_t count,
                                      IntType type, std::int64_t classes = 0);
/// The same of any numbers.
std::vector<std::int64_t> read_integers(const FileBytes& file, std::int64_t offset, std::int64_t count,
                                        IntType type);
/// The labels as bytes of that type.
std::vector<std::byte> stored_labels(const std::vector<std::int64_t>& labels, IntType type);
/// The file of labels for a file of images: replaces the first of the words found in its name, before the
/// suffix, by the other one of its pair. Throws ArgumentError if none occurs.
std::filesystem::path labels_beside(
    const std::filesystem::path& images, const char* format,
    std::initializer_list<std::pair<std::string_view, std::string_view>> words);

/// A sample's position in its file, and its form; a label of -1 is known only from the sample.
struct IndexEntry {
  std::int64_t offset = 0, bytes = 0, label = 0;
  Codec codec = Codec::raw;
  std::int16_t head = 0;  ///< bytes before the image, which ends the piece; -1: only reading it tells
};

/// Makes a sample of the piece at `at`, in `scratch`. Throws IoError if it is damaged.
using ReadEntry =
    std::function<StoredSample(const FileBytes& file, const IndexEntry& at, std::vector<std::byte>& scratch)>;

/// What opening a file finds out by reading through it.
struct SampleIndex {
  ImageSpec spec = {};
  std::vector<IndexEntry> entries = {};
  std::vector<std::string> class_names = {};
  std::vector<Unused> unused = {};
  /// CRC-32C of the beginning of each sample, as in sample_id(); empty: not known yet.
  std::vector<std::uint32_t> crcs = {};
  bool whole = true;        ///< false: some samples cannot be read
  std::string damage = {};  ///< why those behind `entries` cannot
};

/// CRC-32C of the bytes of a sample that its sample_id() depends on, in a file of that many samples.
std::uint32_t crc_of_start(const FileBytes& file, const IndexEntry& at, std::int64_t samples,
                           std::vector<std::byte>& scratch);

/// Samples in a file, each in one piece.
class IndexedStore final : public Dataset {
 public:
  /// Entries must be inside the file; their labels are below spec.classes or, if that is 0, define it.
  /// Without `read`, samples are the unchanged pieces, raw with the shape in `spec`.
  IndexedStore(std::shared_ptr<const FileBytes> file, const ImageSpec& spec, std::vector<IndexEntry> entries,
               ReadEntry read = {}, std::vector<std::string> class_names = {},
               std::vector<Unused> unused = {});
  IndexedStore(std::shared_ptr<const FileBytes> file, SampleIndex index, ReadEntry read);

  std::int64_t size() const override { return std::ssize(entries_); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<Unused> unused() const override { return unused_; }
  std::int64_t label(std::int64_t index) const override;
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::uint64_t sample_id(std::int64_t index) const override;
  std::optional<std::int64_t> image_bytes(std::int64_t index) const override;
  std::string where(std::int64_t index) const override { return file_->where(entry(index).offset); }
  bool resident() const override { return file_->in_memory(); }
  void will_need(std::int64_t first, std::int64_t count) const override;

 private:
  const IndexEntry& entry(std::int64_t index) const;

  std::shared_ptr<const FileBytes> file_;
  ImageSpec spec_;
  std::vector<IndexEntry> entries_;
  ReadEntry read_;
  std::vector<std::string> class_names_;
  std::vector<Unused> unused_;
  std::vector<std::uint32_t> crcs_;
};

/// Reads every entry and stores its label. Returns the size if all images share one, else 0x0x0; no classes.
/// With `damaged`, an entry that cannot be read gets the label 0, and is counted there.
ImageSpec read_all(const FileBytes& file, std::vector<IndexEntry>& entries, const ReadEntry& read,
                   std::int64_t* damaged = nullptr);
/// "about 12 samples, by the size of the rest": of those behind the last of `entries`, where the file is
/// damaged.
std::string samples_behind(const FileBytes& file, const std::vector<IndexEntry>& entries);

/// Adjacent raw images of `spec` in `file` from `offset` on, one for each label.
std::unique_ptr<Dataset> dense_store(std::shared_ptr<const FileBytes> file, std::int64_t offset,
                                     const ImageSpec& spec, const std::vector<std::int64_t>& labels,
                                     std::vector<Unused> unused = {});

}  // namespace athanor::detail
