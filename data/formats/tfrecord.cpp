#include "data/formats/tfrecord.h"

#include <algorithm>
#include <array>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/kept_index.h"
#include "data/formats/detail/record_frame.h"
#include "data/formats/detail/writing.h"
#include "data/formats/example.h"
#include "data/formats/join.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using detail::FileBytes;
using detail::IndexEntry;
using detail::load_le;
using detail::masked_crc;
using Strings = std::vector<std::span<const std::byte>>;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kHead = detail::kRecordHead, kTail = detail::kRecordTail;

/// Adds the position of each record's data to `entries`, with checked framing.
void find_records(const FileBytes& file, std::vector<IndexEntry>& entries) {
  detail::FilePages pages(file);
  for (std::int64_t at = 0; at < file.size();) {
    const std::span<const std::byte> head = pages.at(at, kHead, "a record's length and its CRC");
    const auto stored = load_le<std::uint32_t>(head.subspan(8));
    if (const std::uint32_t crc = masked_crc(head.first(8)); crc != stored) {
      if (at == 0) file.must_not_be_compressed();
      file.fail(at, "the CRC of a record's length must be {:#010x}, but the length has {:#010x}", stored,
                crc);
    }
    const auto bytes = load_le<std::uint64_t>(head);
    const std::int64_t rest = file.size() - at - kHead;
    if (rest < kTail || bytes > static_cast<std::uint64_t>(rest - kTail)) {
      file.fail(at, "a record must have {} bytes and a CRC, but the file ends after {}", bytes, rest);
    }
    entries.push_back({at + kHead, static_cast<std::int64_t>(bytes), -1, Codec::raw, -1});
    at += kHead + entries.back().bytes + kTail;
  }
  if (entries.empty()) file.fail(0, "the file must have at least one record, but is empty");
}

/// The usual names of a part of a sample.
struct Part {
  const char* name;
  std::array<std::string_view, 3> usual;
};
constexpr Part kImage{"image", {"image/encoded", "image", "image_raw"}};
constexpr Part kLabel{"label", {"image/class/label", "label"}};
constexpr Part kHeight{"height", {"image/height", "height"}};
constexpr Part kWidth{"width", {"image/width", "width"}};
constexpr Part kChannels{"channels", {"image/channels", "channels", "depth"}};

/// The data of a record, as a sample. Throws IoError at its offset.
class Record {
 public:
  Record(const FileBytes& file, const IndexEntry& at, const FieldNames& names,
         std::vector<std::byte>& scratch)
      : file_(file), at_(at.offset), names_(names) {
    const std::span<const std::byte> all = file.at(at_, at.bytes + kTail, "a record", scratch),
                                     data = all.first(static_cast<std::size_t>(at.bytes));
    const auto stored = load_le<std::uint32_t>(all.subspan(data.size()));
    if (const std::uint32_t crc = masked_crc(data); crc != stored) {
      file.fail(at_, "the record's CRC must be {:#010x}, but its data has {:#010x}", stored, crc);
    }
    try {
      features_ = read_example(data);
    } catch (const IoError& error) {
      file.fail(at_, "the record must be a tf.train.Example, but got: {}", error.what());
    }
  }

  StoredSample sample() const {
    const auto* strings = std::get_if<Strings>(&must_find(kImage, names_.image));
    if (!strings || strings->size() != 1 || strings->front().empty()) {
      file_.fail(at_, "the record's image must be one string of bytes, but is not");
    }
    StoredSample sample{strings->front()};
    sample.label = number(kLabel, &must_find(kLabel, names_.label));
    if (const auto bad = detail::bad_label(sample.label)) file_.fail(at_, "{}", *bad);
    if (!says_raw()) {
      sample.codec = detail::codec_of(sample.bytes).value_or(Codec::raw);
      if (sample.codec != Codec::raw) return sample;
    }
    sample.height = number(kHeight, find(kHeight));
    sample.width = number(kWidth, find(kWidth));
    sample.channels = number(kChannels, find(kChannels));
    if (sample.channels == 0 && sample.height > 0 && sample.width > 0) {
      sample.channels = std::ssize(sample.bytes) / sample.height / sample.width;
    }
    if (!detail::fits_shape(sample)) {
      file_.fail(at_,
                 "a raw image (no JPEG, PNG or WebP) must have height x width x channels bytes, but has "
                 "{}x{}x{} and {} bytes",
                 sample.height, sample.width, sample.channels, sample.bytes.size());
    }
    return sample;
  }

 private:
  const Feature* find(std::string_view name) const {
    const auto at = features_.find(name);
    return at == features_.end() ? nullptr : &at->second;
  }
  const Feature* find(const Part& part) const {
    for (const std::string_view name : part.usual) {
      const Feature* feature = name.empty() ? nullptr : find(name);
      if (feature) return feature;
    }
    return nullptr;
  }
  const Feature& must_find(const Part& part, const std::string& name) const {
    if (const Feature* feature = name.empty() ? find(part) : find(std::string_view(name))) return *feature;
    file_.fail(at_, "the record must have the feature {}, but has not: name it with --fields {}=NAME",
               name.empty() ? part.usual[0] : detail::printable(name), part.name);
  }

  /// The single integer of a feature; 0 without such a feature.
  std::int64_t number(const Part& part, const Feature* feature) const {
    if (!feature) return 0;
    const auto* values = std::get_if<Ints>(feature);
    if (!values || values->size() != 1) {
      file_.fail(at_, "the record's {} must be one int64, but is not", part.name);
    }
    return values->front();
  }

  bool says_raw() const {
    const Feature* format = find("image/format");
    const auto* strings = format ? std::get_if<Strings>(format) : nullptr;
    return strings && strings->size() == 1 && detail::text_of(strings->front()) == "RAW";
  }

  const FileBytes& file_;
  std::int64_t at_;
  const FieldNames& names_;
  FeatureMap features_;
};

class TfRecordWriter final : public SampleWriter {
 public:
  explicit TfRecordWriter(const std::filesystem::path& path) : file_(path) {}

  void add(const StoredSample& sample) override {
    detail::check_sample(sample, count_, "tfrecord");
    const char* format = sample.codec == Codec::jpeg   ? "JPEG"
                         : sample.codec == Codec::png  ? "PNG"
                         : sample.codec == Codec::webp ? "WEBP"
                                                       : "RAW";
    ATH_CHECK(sample.codec == Codec::raw || detail::codec_of(sample.bytes) == sample.codec,
              "tfrecord: a {} sample must start with its signature, but sample {} does not",
              name_of(sample.codec), count_);
    FeatureMap features{{"image/encoded", Strings{sample.bytes}},
                        {"image/format", Strings{detail::bytes_of(format)}},
                        {"image/class/label", Ints{sample.label}}};
    if (sample.codec == Codec::raw) {
      features["image/height"] = Ints{sample.height};
      features["image/width"] = Ints{sample.width};
      features["image/channels"] = Ints{sample.channels};
    }
    const std::string record = write_example(features);
    detail::frame_record(detail::bytes_of(record),
                         [this](std::span<const std::byte> bytes) { file_.write(bytes); });
    ++count_;
  }

  void finish() override {
    detail::check_some(count_, "tfrecord");
    file_.commit();
  }

 private:
  detail::OutputFile file_;
  std::int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_tfrecord(const std::filesystem::path& path, const FieldNames& names,
                                       bool keep_damaged) {
  const auto file = std::make_shared<FileBytes>(path, "tfrecord", "write the file again, or remove it");
  const detail::ReadEntry read = [names](const FileBytes& bytes, const IndexEntry& at, auto& scratch) {
    return Record(bytes, at, names, scratch).sample();
  };
  const auto build = [&] {
    detail::SampleIndex index;
    try {
      find_records(*file, index.entries);
    } catch (const IoError& error) {
      if (!keep_damaged || index.entries.empty()) throw;
      index.damage = error.what();
    }
    std::int64_t damaged = 0;
    index.spec = detail::read_all(*file, index.entries, read, keep_damaged ? &damaged : nullptr);
    index.whole = damaged == 0 && index.damage.empty();
    if (damaged > 0)
      index.unused = {
          damaged_file(file->name(), fmt::format("{} sample{}", damaged, damaged == 1 ? "" : "s"))};
    return index;
  };
  detail::SampleIndex index =
      detail::kept_index(*file, fmt::format("tfrecord, image={},label={}", names.image, names.label), build);
  const std::string damage = std::move(index.damage);
  const Unused unused = damaged_file(file->name(), detail::samples_behind(*file, index.entries));
  return with_unreadable(std::make_unique<detail::IndexedStore>(file, std::move(index), read), damage,
                         unused);
}

std::unique_ptr<SampleWriter> create_tfrecord(const std::filesystem::path& path) {
  return std::make_unique<TfRecordWriter>(path);
}

}  // namespace athanor
