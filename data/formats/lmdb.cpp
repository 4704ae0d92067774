#include "data/formats/lmdb.h"

#include <algorithm>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/lmdb_tree.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using detail::load_le;

std::filesystem::path data_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? path / "data.mdb" : path;
}

class LmdbStore final : public Dataset {
 public:
  LmdbStore(const std::filesystem::path& path, const LmdbOptions& options)
      : file_(data_file(path), "lmdb", "write the environment again with mdb_copy, or by create_lmdb()") {
    detail::check_classes(options.classes, "lmdb");
    values_ = detail::lmdb_values(file_);
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < size(); ++i) {
      const StoredSample sample = read(i);
      if (const auto bad = detail::bad_label(sample.label, options.classes)) {
        file_.fail(value(i).offset + detail::kLmdbLabel, *bad);
      }
      labels.push_back(sample.label);
      const ImageSpec size{sample.height, sample.width, sample.channels, 0};
      spec_ = i == 0 || size == spec_ ? size : ImageSpec{};
    }
    spec_.classes = detail::count_classes(labels, options.classes);
  }

  std::int64_t size() const override { return std::ssize(values_); }
  const ImageSpec& spec() const override { return spec_; }
  std::string where(std::int64_t i) const override { return file_.where(value(i).offset); }
  bool resident() const override { return true; }
  void will_need(std::int64_t first, std::int64_t count) const override {
    const std::int64_t end = first < 0 ? 0 : first + std::min(count, size() - first);
    for (std::int64_t i = first; i < end; ++i) file_.will_need(value(i).offset, value(i).bytes);
  }

  StoredSample fetch(std::int64_t i, std::vector<std::byte>& /*scratch*/) const override {
    const detail::LmdbValue& at = value(i);
    const std::span<const std::byte> all = file_.at(at.offset, at.bytes, "a value");
    const auto stored = load_le<std::uint32_t>(all.subspan(detail::kLmdbCrc));
    const std::uint32_t crc = crc32c(all.subspan(detail::kLmdbHeader), crc32c(all.first(detail::kLmdbCrc)));
    if (crc != stored) {
      file_.fail(at.offset,
                 fmt::format("the value's CRC must be {:#010x}, but its data has {:#010x}", stored, crc));
    }
    return read(i);
  }

 private:
  const detail::LmdbValue& value(std::int64_t i) const {
    detail::check_index(i, size(), "store");
    return values_[static_cast<std::size_t>(i)];
  }

  /// The value without its CRC.
  StoredSample read(std::int64_t i) const {
    const auto [offset, bytes] = value(i);
    if (bytes <= detail::kLmdbHeader) {
      file_.fail(offset,
                 fmt::format("a value must have more than {} bytes, but has {}", detail::kLmdbHeader, bytes));
    }
    const std::span<const std::byte> head = file_.at(offset, detail::kLmdbHeader, "a value");
    if (detail::text_of(head).substr(0, detail::kLmdbMagic.size()) != detail::kLmdbMagic) {
      file_.fail(offset, "a value must begin with ATH1, as create_lmdb() writes it, but does not");
    }
    const auto codec = std::to_integer<int>(head[detail::kLmdbCodec]);
    if (codec > static_cast<int>(Codec::png)) {
      file_.fail(offset + detail::kLmdbCodec, fmt::format("the codec must be 0, 1 or 2, but is {}", codec));
    }
    const auto side = [&](std::size_t which) {
      return std::int64_t{load_le<std::uint32_t>(head.subspan(detail::kLmdbShape + 4 * which))};
    };
    const StoredSample sample{file_.at(offset + detail::kLmdbHeader, bytes - detail::kLmdbHeader, "an image"),
                              static_cast<Codec>(codec),
                              side(0),
                              side(1),
                              side(2),
                              load_le<std::int64_t>(head.subspan(detail::kLmdbLabel))};
    const bool fits = sample.codec == Codec::raw
                          ? !detail::bad_image(sample.height, sample.width, sample.channels) &&
                                sample.height * sample.width * sample.channels == std::ssize(sample.bytes)
                          : sample.height == 0 && sample.width == 0 && sample.channels == 0;
    if (!fits) {
      file_.fail(offset + detail::kLmdbShape,
                 fmt::format("height, width and channels must fit a {} image of {} bytes, but are {}x{}x{}",
                             name_of(sample.codec), sample.bytes.size(), sample.height, sample.width,
                             sample.channels));
    }
    return sample;
  }

  detail::FileBytes file_;
  std::vector<detail::LmdbValue> values_;
  ImageSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> open_lmdb(const std::filesystem::path& path, const LmdbOptions& options) {
  return std::make_unique<LmdbStore>(path, options);
}

}  // namespace athanor
