#include "data/formats/import/lmdb.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include <lmdb.h>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "data/formats/detail/indexed_store.h"
#include "tensor/base/error.h"
#include "tensor/io/proto.h"
#include "tensor/io/regular_file.h"

namespace athanor {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const MDB_val& value) {
  return {static_cast<const std::byte*>(value.mv_data), value.mv_size};
}
std::string_view text_of(const MDB_val& value) {
  return detail::text_of(bytes_of(value));
}

/// An image of older versions: 32 bytes, little-endian, and the image's bytes:
///
///     0  "ATH1"        4  codec: u8, as Codec    5  zero, 3 bytes
///     8  label: i64   16  height, width, channels: u32 each, of raw images, else 0
///    28  CRC-32C (u32) of bytes 0 to 27 and of the image's, in that order
constexpr std::string_view kOurs = "ATH1";

struct CloseLmdb {
  void operator()(MDB_env* environment) const { mdb_env_close(environment); }
  void operator()(MDB_txn* transaction) const { mdb_txn_abort(transaction); }
};

class LmdbStore final : public Dataset {
 public:
  LmdbStore(const std::filesystem::path& path, const FieldNames& names)
      : name_(lmdb_files(path)[0].string()),
        image_prefix_(names.image.empty() ? "image-" : names.image),
        label_prefix_(names.label.empty() ? "label-" : names.label) {
    const RegularFile file(name_);
    if (!file.problem().empty()) detail::fail<IoError>("lmdb: {} {}", name_, file.problem());
    open();
    read_keys();
    for (std::int64_t i = 0; i < size(); ++i) {
      const StoredSample sample = stored(entry(i));
      const ImageSpec shape{sample.height, sample.width, sample.channels, 0};
      spec_ = i == 0 || shape == spec_ ? shape : ImageSpec{};
      entries_[static_cast<std::size_t>(i)].label = sample.label;
      classes_ = std::max(classes_, sample.label + 1);
    }
    spec_.classes = classes_;
  }

  std::int64_t size() const override { return std::ssize(entries_); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::int64_t label(std::int64_t index) const override { return entry(index).label; }
  std::string where(std::int64_t index) const override {
    return fmt::format("{}, key {}", name_, athanor::printable(text_of(entry(index).key)));
  }

  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    const Entry& at = entry(index);
    StoredSample sample = stored(at);
    if (sample.codec != Codec::raw || is_ours(at)) return sample;
    scratch.resize(sample.bytes.size());
    const auto planes = static_cast<std::size_t>(sample.channels), plane = scratch.size() / planes;
    for (std::size_t c = 0; c < planes; ++c) {
      for (std::size_t p = 0; p < plane; ++p) scratch[p * planes + c] = sample.bytes[c * plane + p];
    }
    sample.bytes = scratch;
    return sample;
  }

 private:
  struct Entry {
    MDB_val key, value;
    std::int64_t label;
  };

  template <class... Args>
  [[noreturn]] void fail(const Entry& at, fmt::format_string<Args...> message, Args&&... args) const {
    detail::fail<IoError>("lmdb: {}, key {}: {}", name_, detail::printable(text_of(at.key)),
                          fmt::format(message, std::forward<Args>(args)...));
  }
  void check(int code, const char* what) const {
    if (code != 0) detail::fail<IoError>("lmdb: {}: cannot {}: {}", name_, what, mdb_strerror(code));
  }
  static bool is_ours(const Entry& at) { return text_of(at.value).starts_with(kOurs); }
  const Entry& entry(std::int64_t index) const {
    detail::check_index(index, size(), "lmdb");
    return entries_[static_cast<std::size_t>(index)];
  }

  void open() {
    MDB_env* environment = nullptr;
    MDB_txn* transaction = nullptr;
    check(mdb_env_create(&environment), "start");
    environment_.reset(environment);
    check(mdb_env_open(environment, name_.c_str(), MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR | MDB_NOTLS, 0),
          "open the environment");
    check(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &transaction), "begin to read");
    transaction_.reset(transaction);
    check(mdb_dbi_open(transaction, nullptr, 0, &database_), "open the database");
  }

  /// Finds the samples, and the labels that lie at other keys.
  void read_keys() {
    MDB_cursor* cursor = nullptr;
    check(mdb_cursor_open(transaction_.get(), database_, &cursor), "walk over the keys");
    const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> closes(cursor, &mdb_cursor_close);
    MDB_val key{}, value{};
    int code = 0;
    while ((code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
      const std::string_view name = text_of(key);
      if (name == "num-samples" || name == "__len__" || is_label(name)) continue;
      entries_.push_back({key, value, -1});
      if (detail::codec_of(bytes_of(value))) entries_.back().label = label_of(entries_.back());
    }
    if (code != MDB_NOTFOUND) check(code, "read the next entry");
    if (entries_.empty()) detail::fail<IoError>("lmdb: {} must have at least one image, but has none", name_);
    number_classes();
  }

  std::optional<std::string_view> find(const std::string& name) const {
    MDB_val key{name.size(), const_cast<char*>(name.data())}, value{};
    const int code = mdb_get(transaction_.get(), database_, &key, &value);
    if (code == MDB_NOTFOUND) return std::nullopt;
    check(code, "find a key");
    return text_of(value);
  }

  /// Whether an image lies at the key that belongs to it.
  bool is_label(std::string_view key) const {
    return key.starts_with(label_prefix_) &&
           find(image_prefix_ + std::string(key.substr(label_prefix_.size()))).has_value();
  }

  /// Of an encoded image; in a folder, the number of that folder among those found so far.
  std::int64_t label_of(const Entry& at) {
    const std::string_view key = text_of(at.key);
    if (key.starts_with(image_prefix_)) {
      const std::string name = label_prefix_ + std::string(key.substr(image_prefix_.size()));
      const std::string_view text = find(name).value_or("");
      if (const std::optional<std::int64_t> label = detail::whole_number(text)) return *label;
      fail(at, "its label, at the key {}, must be a whole number, but is '{}'", detail::printable(name),
           detail::printable(text));
    }
    const std::size_t slash = key.find('/');
    if (slash == std::string_view::npos || slash == 0)
      fail(at,
           "the key of an image must begin with {}, and its label be at a key that begins with {} (--fields "
           "image=...,label=...), or with a class and '/'",
           image_prefix_, label_prefix_);
    const std::string name(key.substr(0, slash));
    if (class_names_.empty() || class_names_.back() != name)
      class_names_.push_back(name);  // keys are in order
    return std::ssize(class_names_) - 1;
  }

  /// A class for each name, in byte order.
  void number_classes() {
    if (class_names_.empty()) return;
    if (const auto other = std::ranges::find_if(entries_,
                                                [](const Entry& at) {
                                                  return text_of(at.key).find('/') ==
                                                             std::string_view::npos ||
                                                         !detail::codec_of(bytes_of(at.value));
                                                });
        other != entries_.end())
      fail(*other, "all keys must name a class, CLASS/NAME, as others do, and all values be encoded images");
    std::map<std::string, std::int64_t> numbers;
    for (const std::string& name : class_names_) numbers[name] = 0;
    std::vector<std::string> sorted;
    for (auto& [name, number] : numbers) {
      number = std::ssize(sorted);
      sorted.push_back(name);
    }
    for (Entry& at : entries_) at.label = numbers[class_names_[static_cast<std::size_t>(at.label)]];
    class_names_ = std::move(sorted);
    classes_ = std::ssize(class_names_);
  }

  /// As it lies in the file: the channels of a Datum's raw image come first.
  StoredSample stored(const Entry& at) const {
    const Bytes value = bytes_of(at.value);
    const std::optional<Codec> codec = detail::codec_of(value);
    StoredSample sample = is_ours(at) ? ours(at, value)
                          : codec     ? StoredSample{value, *codec}
                                      : datum(at, value);
    if (codec) sample.label = at.label;
    if (const auto bad = detail::bad_label(sample.label)) fail(at, "{}", *bad);
    return sample;
  }

  StoredSample ours(const Entry& at, Bytes value) const {
    constexpr std::size_t kHeader = 32, kCodec = 4, kLabel = 8, kShape = 16, kCrc = 28;
    if (value.size() <= kHeader)
      fail(at, "a value must have more than {} bytes, but has {}", kHeader, value.size());
    const auto stored = detail::load_le<std::uint32_t>(value.subspan(kCrc));
    if (const std::uint32_t crc = crc32c(value.subspan(kHeader), crc32c(value.first(kCrc))); crc != stored)
      fail(at, "the value's CRC must be {:#010x}, but its data has {:#010x}", stored, crc);
    const auto codec = std::to_integer<int>(value[kCodec]);
    if (codec > static_cast<int>(Codec::webp)) fail(at, "the codec must be in [0, 3], but is {}", codec);
    const auto side = [&](std::size_t which) {
      return std::int64_t{detail::load_le<std::uint32_t>(value.subspan(kShape + 4 * which))};
    };
    const StoredSample sample{value.subspan(kHeader),
                              static_cast<Codec>(codec),
                              side(0),
                              side(1),
                              side(2),
                              detail::load_le<std::int64_t>(value.subspan(kLabel))};
    if (sample.codec == Codec::raw) check_shape(at, sample);
    return sample;
  }

  StoredSample datum(const Entry& at, Bytes value) const {
    StoredSample sample;
    bool has_floats = false;
    try {
      for (ProtoReader fields(value, "Datum"); fields.next();) {
        const auto number = static_cast<std::int64_t>(static_cast<std::int32_t>(fields.number()));
        if (fields.is(1, Wire::varint)) sample.channels = number;
        if (fields.is(2, Wire::varint)) sample.height = number;
        if (fields.is(3, Wire::varint)) sample.width = number;
        if (fields.is(4, Wire::length)) sample.bytes = fields.bytes();
        if (fields.is(5, Wire::varint)) sample.label = number;
        has_floats |= fields.is(6, Wire::fixed32) || fields.is(6, Wire::length);
      }
    } catch (const IoError& error) {
      fail(at, "a value must be a JPEG, PNG or WebP, or Caffe's Datum, but got: {}", error.what());
    }
    if (has_floats) fail(at, "a Datum must hold bytes, but holds floating-point numbers");
    if (sample.bytes.empty())
      fail(at, "a value must be a JPEG, PNG or WebP, or Caffe's Datum, but is neither");
    if (const std::optional<Codec> codec = detail::codec_of(sample.bytes);
        codec && !detail::fits_shape(sample))
      return {sample.bytes, *codec, 0, 0, 0, sample.label};
    check_shape(at, sample);
    return sample;
  }

  void check_shape(const Entry& at, const StoredSample& sample) const {
    if (!detail::fits_shape(sample))
      fail(at, "a raw image must have height x width x channels bytes, but has {}x{}x{} and {} bytes",
           sample.height, sample.width, sample.channels, sample.bytes.size());
  }

  std::string name_, image_prefix_, label_prefix_;
  std::unique_ptr<MDB_env, CloseLmdb> environment_;
  std::unique_ptr<MDB_txn, CloseLmdb> transaction_;  ///< keys and values lie in its mapping
  MDB_dbi database_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::string> class_names_;
  std::int64_t classes_ = 0;
  ImageSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> open_lmdb(const std::filesystem::path& path, const FieldNames& names) {
  return std::make_unique<LmdbStore>(path, names);
}

}  // namespace athanor
