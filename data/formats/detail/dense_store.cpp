#include "data/formats/detail/dense_store.h"

#include <algorithm>

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"

namespace athanor::detail {

std::optional<std::string> bad_image(std::int64_t height, std::int64_t width, std::int64_t channels) {
  const std::optional<std::int64_t> bytes = product({height, width, channels});
  if (height > 0 && width > 0 && channels > 0 && bytes && *bytes <= kMaxImageBytes) return std::nullopt;
  return fmt::format(
      "height, width and channels must be positive and at most 1 GiB together, but are {}x{}x{}", height,
      width, channels);
}

std::optional<std::string> bad_label(std::int64_t label, std::int64_t classes) {
  const std::int64_t end = classes > 0 ? classes : kMaxClasses;
  if (label >= 0 && label < end) return std::nullopt;
  return fmt::format("the label must be in [0, {}), but is {}", end, label);
}

std::int64_t count_classes(const std::vector<std::int64_t>& labels, std::int64_t stated) {
  return stated > 0 || labels.empty() ? stated : *std::max_element(labels.begin(), labels.end()) + 1;
}

void check_classes(std::int64_t classes, const char* format) {
  ATH_CHECK(classes >= 0 && classes <= kMaxClasses, "{}: classes must be in [0, {}], but got {}", format,
            kMaxClasses, classes);
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
  const std::int64_t largest = labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end());
  if (largest < 256) return {1, false, std::endian::little};
  if (largest < 65536) return {2, false, std::endian::little};
  return {4, true, std::endian::little};
}

std::string name_of(const IntType& type) {
  return fmt::format("{}{}", type.is_signed ? 'i' : 'u', 8 * type.bytes);
}

std::vector<std::int64_t> read_labels(const FileBytes& file, std::int64_t offset, std::int64_t count,
                                      IntType type, std::int64_t classes) {
  const std::optional<std::int64_t> bytes = product({count, type.bytes});
  if (!bytes) file.fail(offset, fmt::format("{} labels must fit into the file, but do not", count));
  const std::span<const std::byte> from = file.at(offset, *bytes, fmt::format("{} labels", count));
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
    if (const auto bad = bad_label(labels[i], classes)) {
      file.fail(offset + static_cast<std::int64_t>(i * width), *bad);
    }
  }
  return labels;
}

std::vector<std::byte> stored_labels(const std::vector<std::int64_t>& labels, IntType type) {
  std::vector<std::byte> bytes;
  bytes.reserve(labels.size() * static_cast<std::size_t>(type.bytes));
  for (const std::int64_t label : labels) {
    for (int b = 0; b < type.bytes; ++b) {
      const int significance = type.order == std::endian::little ? b : type.bytes - 1 - b;
      bytes.push_back(static_cast<std::byte>(label >> (8 * significance)));
    }
  }
  return bytes;
}

DenseStore::DenseStore(std::shared_ptr<const FileBytes> file, std::int64_t offset, const ImageSpec& spec,
                       std::vector<std::int64_t> labels)
    : file_(std::move(file)), offset_(offset), spec_(spec), labels_(std::move(labels)) {}

StoredSample DenseStore::fetch(std::int64_t index, std::vector<std::byte>& /*scratch*/) const {
  check_index(index, size(), "store");
  const std::int64_t bytes = spec_.bytes();
  return {file_->bytes().subspan(static_cast<std::size_t>(offset_ + index * bytes),
                                 static_cast<std::size_t>(bytes)),
          Codec::raw,
          spec_.height,
          spec_.width,
          spec_.channels,
          labels_[static_cast<std::size_t>(index)]};
}

std::string DenseStore::where(std::int64_t index) const {
  return file_->where(offset_ + index * spec_.bytes());
}

void DenseStore::will_need(std::int64_t first, std::int64_t count) const {
  if (first < 0 || first >= size()) return;
  file_->will_need(offset_ + first * spec_.bytes(), std::min(count, size() - first) * spec_.bytes());
}

void check_index(std::int64_t index, std::int64_t size, const char* format) {
  ATH_CHECK(index >= 0 && index < size, "{}: index must be in [0, {}), but got {}", format, size, index);
}

}  // namespace athanor::detail
