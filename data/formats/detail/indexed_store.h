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

// What readers share: which numbers may be shapes and labels, and samples that lie in a file piece by piece.

namespace athanor::detail {

/// Labels are below it: counts of classes stay far from overflow, and a damaged label is found.
inline constexpr std::int64_t kMaxClasses = std::int64_t{1} << 31;
inline constexpr std::int64_t kMaxImageBytes = std::int64_t{1} << 30;

/// What is wrong with the shape of an image, or nothing.
std::optional<std::string> bad_image(const ImageSpec& shape);
/// Whether a raw sample has such a shape, and as many bytes.
bool fits_shape(const StoredSample& sample);
/// What is wrong with `label`, where `classes` are stated (0: they are not), or nothing.
std::optional<std::string> bad_label(std::int64_t label, std::int64_t classes);
/// `stated`, or where it is 0 the largest label + 1.
std::int64_t count_classes(const std::vector<std::int64_t>& labels, std::int64_t stated);
/// Throws ArgumentError unless `classes` is 0 (not stated) or may be a count of classes.
void check_classes(std::int64_t classes, const char* format);
/// Throws ArgumentError where `index` is not in [0, size).
void check_index(std::int64_t index, std::int64_t size, const char* format);

/// How a file holds whole numbers.
struct IntType {
  int bytes = 1;  ///< 1, 2, 4 or 8
  bool is_signed = false;
  std::endian order = std::endian::little;
};
/// "u8", "i16", ..., or nothing where `name` is no such type. Little-endian.
std::optional<IntType> int_type(std::string_view name);
/// The smallest of u8, u16 and i32 that holds all of `labels`, which are below kMaxClasses.
IntType smallest_type(const std::vector<std::int64_t>& labels);
std::string name_of(const IntType& type);
/// `count` labels from `offset` on. Throws IoError where the file ends before, or at the first that is not in
/// [0, classes) (with classes = 0: [0, kMaxClasses)).
std::vector<std::int64_t> read_labels(const FileBytes& file, std::int64_t offset, std::int64_t count,
                                      IntType type, std::int64_t classes);
/// The labels as bytes of that type.
std::vector<std::byte> stored_labels(const std::vector<std::int64_t>& labels, IntType type);
/// Where the labels of a file of images lie: the first of the words that its name has, before the suffix, is
/// turned into the other one of its pair. Throws ArgumentError where it has none.
std::filesystem::path labels_beside(
    const std::filesystem::path& images, const char* format,
    std::initializer_list<std::pair<std::string_view, std::string_view>> words);

/// Where a sample lies in its file, and what it is.
struct IndexEntry {
  std::int64_t offset = 0, bytes = 0, label = 0;
  Codec codec = Codec::raw;
};

/// Makes a sample of the piece at `at`, in `scratch` where it needs memory. Throws IoError on a damaged one.
using ReadEntry =
    std::function<StoredSample(const FileBytes& file, const IndexEntry& at, std::vector<std::byte>& scratch)>;

/// Samples that lie in a file, each in one piece.
class IndexedStore final : public Dataset {
 public:
  /// The entries lie in the file; their labels are below spec.classes or, where that is 0, make them. Without
  /// `read`, samples are the pieces as they are, raw ones of the shape in `spec`.
  IndexedStore(std::shared_ptr<const FileBytes> file, const ImageSpec& spec, std::vector<IndexEntry> entries,
               ReadEntry read = {});

  std::int64_t size() const override { return std::ssize(entries_); }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::string where(std::int64_t index) const override { return file_->where(entry(index).offset); }
  bool resident() const override { return true; }
  void will_need(std::int64_t first, std::int64_t count) const override;

 private:
  const IndexEntry& entry(std::int64_t index) const;

  std::shared_ptr<const FileBytes> file_;
  ImageSpec spec_;
  std::vector<IndexEntry> entries_;
  ReadEntry read_;
};

/// Reads every entry, and notes its label. The size that all images have, or 0x0x0; no classes.
ImageSpec read_all(const FileBytes& file, std::vector<IndexEntry>& entries, const ReadEntry& read);

/// Raw images of `spec` that lie in `file` one after the other, from `offset` on, one for each label.
std::unique_ptr<Dataset> dense_store(std::shared_ptr<const FileBytes> file, std::int64_t offset,
                                     const ImageSpec& spec, const std::vector<std::int64_t>& labels);

}  // namespace athanor::detail
