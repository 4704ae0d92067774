#include "data/formats/detail/indexed_store.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "data/detail/sample_id.h"
#include "data/detail/thread_scratch.h"
#include "data/formats/detail/bytes.h"
#include "tensor/base/error.h"

namespace athanor::detail {

std::optional<std::string> bad_image(const ImageSpec& shape) {
  const std::optional<std::int64_t> bytes = product({shape.height, shape.width, shape.channels});
  const bool positive = shape.height > 0 && shape.width > 0 && shape.channels > 0;
  if (positive && bytes && *bytes <= kMaxImageBytes) return std::nullopt;
  return fmt::format(
      "height, width and channels must be positive and at most 1 GiB together, but are {}x{}x{}",
      shape.height, shape.width, shape.channels);
}

std::optional<std::string> channels_first(const ImageSpec& shape) {
  constexpr std::int64_t kMost = 4;  // channels of an image
  if ((shape.height != 1 && shape.height != 3) || shape.channels <= kMost) return std::nullopt;
  return fmt::format(
      "images must be [N, H, W, C], but are [N, {}, {}, {}], with channels first: convert them with "
      "transpose(0, 2, 3, 1)",
      shape.height, shape.width, shape.channels);
}

bool fits_shape(const ImageSpec& shape, std::int64_t bytes) {
  return !bad_image(shape) && shape.bytes() == bytes;
}

bool fits_shape(const StoredSample& sample) {
  return fits_shape({sample.height, sample.width, sample.channels, 0}, std::ssize(sample.bytes));
}

std::optional<std::string> bad_label(std::int64_t label, std::int64_t classes) {
  const std::int64_t end = classes > 0 ? classes : kMaxClasses;
  if (label >= 0 && label < end) return std::nullopt;
  return fmt::format("the label must be in [0, {}), but is {}", end, label);
}

std::int64_t count_classes(const std::vector<std::int64_t>& labels) {
  return labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end()) + 1;
}

void check_classes(std::int64_t classes, const char* format) {
  ATH_CHECK(classes >= 0 && classes <= kMaxClasses, "{}: classes must be in [0, {}], but got {}", format,
            kMaxClasses, classes);
}

void check_index(std::int64_t index, std::int64_t size, const char* format) {
  ATH_CHECK(index >= 0 && index < size, "{}: index must be in [0, {}), but got {}", format, size, index);
}

std::optional<IntType> int_type(std::string_view name) {
  for (const int bytes : {1, 2, 4, 8}) {
    for (const bool is_signed : {false, true}) {
      const IntType type{bytes, is_signed, std::endian::little};
      if (name == name_of(type)) return type;
    }
  }
  return std::nullopt;
}

IntType smallest_type(const std::vector<std::int64_t>& labels) {
  const std::int64_t classes = count_classes(labels);
  if (classes <= 256) return {1, false, std::endian::little};
  if (classes <= 65536) return {2, false, std::endian::little};
  return {4, true, std::endian::little};
}

std::string name_of(const IntType& type) {
  return fmt::format("{}{}", type.is_signed ? 'i' : 'u', 8 * type.bytes);
}

std::vector<std::int64_t> read_integers(const FileBytes& file, std::int64_t offset, std::int64_t count,
                                        IntType type) {
  const std::optional<std::int64_t> bytes = product({count, type.bytes});
  if (!bytes) file.fail(offset, "{} labels must fit into the file, but do not", count);
  std::vector<std::byte> scratch;
  const std::span<const std::byte> from = file.at(offset, *bytes, fmt::format("{} labels", count), scratch);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  const auto width = static_cast<std::size_t>(type.bytes);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::uint64_t value = 0;
    for (std::size_t b = 0; b < width; ++b) {
      const std::size_t significance = type.order == std::endian::little ? b : width - 1 - b;
      value |= std::to_integer<std::uint64_t>(from[i * width + b]) << (8 * significance);
    }
    const auto unused = static_cast<int>(64 - 8 * width);
    const auto shifted = static_cast<std::int64_t>(value << unused);
    labels[i] = type.is_signed ? shifted >> unused : static_cast<std::int64_t>(value);
  }
  return labels;
}

std::vector<std::int64_t> read_labels(const FileBytes& file, std::int64_t offset, std::int64_t count,
                                      IntType type, std::int64_t classes) {
  std::vector<std::int64_t> labels = read_integers(file, offset, count, type);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (const auto bad = bad_label(labels[i], classes))
      file.fail(offset + static_cast<std::int64_t>(i) * type.bytes, "{}", *bad);
  }
  return labels;
}

std::vector<std::byte> stored_labels(const std::vector<std::int64_t>& labels, IntType type) {
  const auto width = static_cast<std::size_t>(type.bytes);
  ByteWriter out;
  out.bytes.reserve(labels.size() * width);
  for (const std::int64_t label : labels) {
    const auto all = stored(label, type.order);  // the upper bytes are zero
    out.add(type.order == std::endian::little ? std::span(all).first(width) : std::span(all).last(width));
  }
  return std::move(out.bytes);
}

std::filesystem::path labels_beside(
    const std::filesystem::path& images, const char* format,
    std::initializer_list<std::pair<std::string_view, std::string_view>> words) {
  std::string name = images.stem().string();
  for (const auto& [from, to] : words) {
    if (const std::size_t at = name.rfind(from); at != std::string::npos) {
      name.replace(at, from.size(), to);
      return images.parent_path() / (name + images.extension().string());
    }
  }
  std::vector<std::string_view> known;
  for (const auto& [from, to] : words) known.push_back(from);
  const auto& [one, other] = *words.begin();
  detail::fail<>(
      "{}: the name of a file of images must contain {}, but is {}; its labels are in a file beside it, as "
      "in "
      "{}{} and {}{}",
      format, fmt::join(known, " or "), images.string(), one, images.extension().string(), other,
      images.extension().string());
}

IndexedStore::IndexedStore(std::shared_ptr<const FileBytes> file, const ImageSpec& spec,
                           std::vector<IndexEntry> entries, ReadEntry read,
                           std::vector<std::string> class_names, std::vector<Unused> unused)
    : file_(std::move(file)),
      spec_(spec),
      entries_(std::move(entries)),
      read_(std::move(read)),
      class_names_(std::move(class_names)),
      unused_(std::move(unused)) {
  if (!class_names_.empty() && spec.classes > 0 && std::ssize(class_names_) != spec.classes)
    file_->fail(0, "there must be {} classes, but their names are {}", spec.classes, class_names_.size());
  if (spec.classes > 0) return;
  for (const IndexEntry& entry : entries_) {
    if (!class_names_.empty() && entry.label >= std::ssize(class_names_))
      file_->fail(entry.offset, "a label must be below {}, the number of classes, but is {}",
                  class_names_.size(), entry.label);
    spec_.classes = std::max(spec_.classes, entry.label + 1);
  }
  spec_.classes = std::max(spec_.classes, std::ssize(class_names_));
}

IndexedStore::IndexedStore(std::shared_ptr<const FileBytes> file, SampleIndex index, ReadEntry read)
    : IndexedStore(std::move(file), index.spec, std::move(index.entries), std::move(read),
                   std::move(index.class_names), std::move(index.unused)) {
  crcs_ = std::move(index.crcs);
}

const IndexEntry& IndexedStore::entry(std::int64_t index) const {
  check_index(index, size(), "store");
  return entries_[static_cast<std::size_t>(index)];
}

std::int64_t IndexedStore::label(std::int64_t index) const {
  const std::int64_t label = entry(index).label;
  return label >= 0 ? label : Dataset::label(index);
}

StoredSample IndexedStore::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  const IndexEntry& at = entry(index);
  if (read_) return read_(*file_, at, scratch);
  return {file_->at(at.offset, at.bytes, "a sample", scratch),
          at.codec,
          spec_.height,
          spec_.width,
          spec_.channels,
          at.label};
}

std::uint32_t crc_of_start(const FileBytes& file, const IndexEntry& at, std::int64_t samples,
                           std::vector<std::byte>& scratch) {
  return crc32c(file.at(at.offset, std::min(at.bytes, compared_bytes(samples)), "a sample", scratch));
}

std::uint64_t IndexedStore::sample_id(std::int64_t index) const {
  const IndexEntry& at = entry(index);
  kernels::HashOf hash;
  hash.add(at.bytes, at.label);
  const bool looked_into = is_looked_into(size());
  if (at.codec == Codec::raw || !looked_into) hash.add(at.offset);  // the first rows of images may be equal
  if (looked_into) {
    std::vector<std::byte> scratch;
    hash.add(crcs_.empty() ? crc_of_start(*file_, at, size(), scratch)
                           : crcs_[static_cast<std::size_t>(index)]);
  }
  return hash.value();
}

std::optional<std::int64_t> IndexedStore::image_bytes(std::int64_t index) const {
  const IndexEntry& at = entry(index);
  if (at.head >= 0) return at.bytes - at.head;
  ThreadScratch scratch;
  return std::ssize(fetch(index, scratch.bytes()).bytes);
}

// Merges adjacent samples, since each system call takes time.
void IndexedStore::will_need(std::int64_t first, std::int64_t count) const {
  constexpr std::int64_t kGap = 64 << 10;
  const std::int64_t end = first < 0 ? first : first + std::min(count, size() - first);
  for (std::int64_t i = first; i < end;) {
    const std::int64_t start = entry(i).offset;
    std::int64_t stop = start;
    for (; i < end; ++i) {
      const IndexEntry& at = entries_[static_cast<std::size_t>(i)];
      if (at.offset < start || at.offset - stop > kGap) break;
      stop = std::max(stop, at.offset + at.bytes);
    }
    file_->will_need(start, stop - start);
  }
}

ImageSpec read_all(const FileBytes& file, std::vector<IndexEntry>& entries, const ReadEntry& read,
                   std::int64_t* damaged) {
  std::optional<ImageSpec> all;
  std::vector<std::byte> scratch;
  for (IndexEntry& entry : entries) {
    StoredSample sample;
    try {
      sample = read(file, entry, scratch);
    } catch (const IoError&) {
      if (!damaged) throw;
      ++*damaged;
      entry.label = 0;
      continue;
    }
    entry.label = sample.label;
    const ImageSpec size{sample.height, sample.width, sample.channels, 0};
    all = !all || size == *all ? size : ImageSpec{};
  }
  return all.value_or(ImageSpec{});
}

std::string samples_behind(const FileBytes& file, const std::vector<IndexEntry>& entries) {
  std::int64_t end = 1;
  for (const IndexEntry& entry : entries) end = std::max(end, entry.offset + entry.bytes);
  const double each =
      static_cast<double>(end) / static_cast<double>(std::max<std::int64_t>(std::ssize(entries), 1));
  const auto count = std::llround(static_cast<double>(file.size() - end) / each);
  return count > 1 ? fmt::format("about {} samples, by the size of the rest", count) : "about 1 sample";
}

std::unique_ptr<Dataset> dense_store(std::shared_ptr<const FileBytes> file, std::int64_t offset,
                                     const ImageSpec& spec, const std::vector<std::int64_t>& labels,
                                     std::vector<Unused> unused) {
  std::vector<IndexEntry> entries;
  entries.reserve(labels.size());
  for (const std::int64_t label : labels) {
    entries.push_back({offset, spec.bytes(), label, Codec::raw});
    offset += spec.bytes();
  }
  return std::make_unique<IndexedStore>(std::move(file), spec, std::move(entries), ReadEntry(),
                                        std::vector<std::string>(), std::move(unused));
}

}  // namespace athanor::detail
