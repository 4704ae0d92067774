#include "data/formats/lmdb.h"

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/lmdb_tree.h"

namespace athanor {
namespace {

using detail::load_le;

std::filesystem::path data_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? path / "data.mdb" : path;
}

/// Checks a value's CRC.
void check_crc(const detail::FileBytes& file, const detail::IndexEntry& at,
               std::span<const std::byte> value) {
  const auto stored = load_le<std::uint32_t>(value.subspan(detail::kLmdbCrc));
  const std::uint32_t crc = crc32c(value.subspan(detail::kLmdbHeader), crc32c(value.first(detail::kLmdbCrc)));
  if (crc != stored) {
    file.fail(at.offset, "the value's CRC must be {:#010x}, but its data has {:#010x}", stored, crc);
  }
}

/// Reads a value or, without its bytes, only its header.
StoredSample read_value(const detail::FileBytes& file, const detail::IndexEntry& at, std::int64_t classes,
                        bool whole, std::vector<std::byte>& scratch) {
  if (at.bytes <= detail::kLmdbHeader) {
    file.fail(at.offset, "a value must have more than {} bytes, but has {}", detail::kLmdbHeader, at.bytes);
  }
  const std::span<const std::byte> value =
      file.at(at.offset, whole ? at.bytes : detail::kLmdbHeader, "a value", scratch);
  if (whole) check_crc(file, at, value);
  if (!detail::text_of(value).starts_with(detail::kLmdbMagic)) {
    file.fail(at.offset, "a value must begin with ATH1, which create_lmdb() writes, but does not");
  }
  const auto codec = std::to_integer<int>(value[detail::kLmdbCodec]);
  if (codec > static_cast<int>(Codec::webp)) {
    file.fail(at.offset + detail::kLmdbCodec, "the codec must be in [0, 3], but is {}", codec);
  }
  const auto side = [&](std::size_t which) {
    return std::int64_t{load_le<std::uint32_t>(value.subspan(detail::kLmdbShape + 4 * which))};
  };
  const StoredSample sample{value.subspan(detail::kLmdbHeader),
                            static_cast<Codec>(codec),
                            side(0),
                            side(1),
                            side(2),
                            load_le<std::int64_t>(value.subspan(detail::kLmdbLabel))};
  if (const auto bad = detail::bad_label(sample.label, classes)) {
    file.fail(at.offset + detail::kLmdbLabel, "{}", *bad);
  }
  const std::int64_t bytes = at.bytes - detail::kLmdbHeader;
  const ImageSpec shape{sample.height, sample.width, sample.channels, 0};
  const bool fits = sample.codec == Codec::raw ? detail::fits_shape(shape, bytes) : shape == ImageSpec{};
  if (!fits) {
    file.fail(at.offset + detail::kLmdbShape,
              "height, width and channels must fit a {} image of {} bytes, but are {}x{}x{}",
              name_of(sample.codec), bytes, sample.height, sample.width, sample.channels);
  }
  return sample;
}

}  // namespace

std::unique_ptr<Dataset> open_lmdb(const std::filesystem::path& path, const LmdbOptions& options) {
  detail::check_classes(options.classes, "lmdb");
  const auto file = std::make_shared<detail::FileBytes>(
      data_file(path), "lmdb", "write the environment again with mdb_copy, or with create_lmdb()");
  std::vector<detail::IndexEntry> entries = detail::lmdb_values(*file);
  const auto reader = [classes = options.classes](bool whole) -> detail::ReadEntry {
    return [classes, whole](const auto& bytes, const auto& at, auto& scratch) {
      return read_value(bytes, at, classes, whole, scratch);
    };
  };
  ImageSpec spec = detail::read_all(*file, entries, reader(false));
  spec.classes = options.classes;
  return std::make_unique<detail::IndexedStore>(file, spec, std::move(entries), reader(true));
}

}  // namespace athanor
