#include "data/formats/tfrecord.h"

#include <algorithm>
#include <initializer_list>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/writing.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using detail::load_le;

// A record is its length (u64), a CRC of those 8 bytes, the data, and a CRC of the data; little-endian.
constexpr std::int64_t kHead = 12, kTail = 4;

/// CRCs are masked, because a CRC of data that holds CRCs is weak.
std::uint32_t masked_crc(std::span<const std::byte> bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return detail::text_of(bytes).substr(0, magic.size()) == magic;
}

class TfRecordStore final : public Dataset {
 public:
  TfRecordStore(const std::filesystem::path& path, const TfRecordOptions& options)
      : file_(path, "tfrecord", "write the file again, or leave it out"), options_(options) {
    detail::check_classes(options_.classes, "tfrecord");
    index();
    spec_.classes = options_.classes;
    if (options_.classes == 0) scan();
  }

  std::int64_t size() const override { return std::ssize(starts_); }
  const ImageSpec& spec() const override { return spec_; }
  std::string where(std::int64_t i) const override {
    detail::check_index(i, size(), "store");
    return file_.where(starts_[static_cast<std::size_t>(i)]);
  }
  bool resident() const override { return true; }
  void will_need(std::int64_t first, std::int64_t count) const override {
    if (first < 0 || first >= size() || count <= 0) return;
    const std::int64_t last = first + std::min(count, size() - first) - 1;
    const std::int64_t start = starts_[static_cast<std::size_t>(first)];
    file_.will_need(start, starts_[static_cast<std::size_t>(last)] + length(last) - start);
  }

  StoredSample fetch(std::int64_t i, std::vector<std::byte>& /*scratch*/) const override {
    detail::check_index(i, size(), "store");
    const std::int64_t start = starts_[static_cast<std::size_t>(i)], data = start + kHead;
    const auto record =
        file_.bytes().subspan(static_cast<std::size_t>(data), static_cast<std::size_t>(length(i)));
    const auto stored = load_le<std::uint32_t>(file_.at(data + std::ssize(record), kTail, "a record's CRC"));
    if (const std::uint32_t crc = masked_crc(record); crc != stored) {
      file_.fail(data,
                 fmt::format("the record's CRC must be {:#010x}, but its data has {:#010x}", stored, crc));
    }
    FeatureMap features;
    try {
      features = read_example(record);
    } catch (const IoError& error) {
      file_.fail(data, fmt::format("the record must be a tf.train.Example, but got: {}", error.what()));
    }
    return sample_of(features, data);
  }

 private:
  void index() {
    if (begins_with(file_.bytes(), "\x1f\x8b"))
      file_.fail(0, "the file must not be compressed: gunzip it first");
    for (std::int64_t at = 0; at < file_.size();) {
      const std::span<const std::byte> head = file_.at(at, kHead, "a record's length and its CRC");
      const auto stored = load_le<std::uint32_t>(head.subspan(8));
      if (const std::uint32_t crc = masked_crc(head.first(8)); crc != stored) {
        file_.fail(at,
                   fmt::format("the CRC of a record's length must be {:#010x}, but the length has {:#010x}",
                               stored, crc));
      }
      const auto bytes = load_le<std::uint64_t>(head);
      const std::int64_t rest = file_.size() - at - kHead;
      if (rest < kTail || bytes > static_cast<std::uint64_t>(rest - kTail)) {
        file_.fail(at, fmt::format("a record must have {} bytes and a CRC, but the file ends after {}", bytes,
                                   rest));
      }
      starts_.push_back(at);
      at += kHead + static_cast<std::int64_t>(bytes) + kTail;
    }
    if (starts_.empty()) file_.fail(0, "there must be at least one record, but the file is empty");
  }

  void scan() {
    std::vector<std::byte> none;
    for (std::int64_t i = 0; i < size(); ++i) {
      const StoredSample sample = fetch(i, none);
      const ImageSpec size{sample.height, sample.width, sample.channels, 0};
      const std::int64_t classes = std::max(spec_.classes, sample.label + 1);
      spec_.classes = 0;
      spec_ = i == 0 || size == spec_ ? size : ImageSpec{};
      spec_.classes = classes;
    }
  }

  std::int64_t length(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(starts_[static_cast<std::size_t>(i)]);
    return load_le<std::int64_t>(file_.bytes().subspan(at));
  }

  /// The feature under `key` or, where that is empty, under the first of `usual` there is; else null.
  static const Feature* find(const FeatureMap& features, const std::string& key,
                             std::initializer_list<const char*> usual) {
    if (!key.empty()) {
      const auto at = features.find(key);
      return at == features.end() ? nullptr : &at->second;
    }
    for (const char* other : usual) {
      if (const auto at = features.find(other); at != features.end()) return &at->second;
    }
    return nullptr;
  }

  /// The one whole number of a feature; `absent` where there is no such feature.
  std::int64_t number(const Feature* feature, std::int64_t data, const char* what,
                      std::int64_t absent) const {
    if (!feature) return absent;
    const auto* values = std::get_if<std::vector<std::int64_t>>(feature);
    if (!values || values->size() != 1) {
      file_.fail(data, fmt::format("the record's {} must be one int64, but is not", what));
    }
    return values->front();
  }

  StoredSample sample_of(const FeatureMap& features, std::int64_t data) const {
    const auto missing = [&](const char* what, const std::string& key, const char* usual) {
      file_.fail(data, fmt::format("the record must have the feature {}, but has not (option {}_key)",
                                   key.empty() ? usual : detail::printable(key), what));
    };
    const Feature* image = find(features, options_.image_key, {"image/encoded", "image", "image_raw"});
    if (!image) missing("image", options_.image_key, "image/encoded, image or image_raw");
    const auto* strings = std::get_if<std::vector<std::span<const std::byte>>>(image);
    if (!strings || strings->size() != 1 || strings->front().empty()) {
      file_.fail(data, "the record's image must be one string of bytes, but is not");
    }
    const Feature* label = find(features, options_.label_key, {"image/class/label", "label"});
    if (!label) missing("label", options_.label_key, "image/class/label or label");
    StoredSample sample{strings->front()};
    const std::int64_t stored = number(label, data, "label", 0);
    if (__builtin_add_overflow(stored, options_.label_offset, &sample.label)) sample.label = -1;
    if (const auto bad = detail::bad_label(sample.label, options_.classes)) file_.fail(data, *bad);

    if (!says_raw(features)) {
      if (begins_with(sample.bytes, "\xff\xd8\xff")) sample.codec = Codec::jpeg;
      if (begins_with(sample.bytes, "\x89PNG\r\n\x1a\n")) sample.codec = Codec::png;
      if (sample.codec != Codec::raw) return sample;
    }
    const auto side = [&](const std::string& key, std::initializer_list<const char*> usual,
                          const char* what) { return number(find(features, key, usual), data, what, 0); };
    sample.height = side(options_.height_key, {"image/height", "height"}, "height");
    sample.width = side(options_.width_key, {"image/width", "width"}, "width");
    sample.channels = side(options_.channels_key, {"image/channels", "channels", "depth"}, "channels");
    const std::int64_t bytes = std::ssize(sample.bytes);
    if (sample.channels == 0 && sample.height > 0 && sample.width > 0) {
      sample.channels = bytes / sample.height / sample.width;
    }
    if (detail::bad_image(sample.height, sample.width, sample.channels) ||
        sample.height * sample.width * sample.channels != bytes) {
      file_.fail(
          data,
          fmt::format("an image that is no JPEG or PNG must have height x width x channels bytes, but has "
                      "{}x{}x{} and {} bytes",
                      sample.height, sample.width, sample.channels, bytes));
    }
    return sample;
  }

  static bool says_raw(const FeatureMap& features) {
    const auto at = features.find("image/format");
    if (at == features.end()) return false;
    const auto* strings = std::get_if<std::vector<std::span<const std::byte>>>(&at->second);
    return strings && strings->size() == 1 && detail::text_of(strings->front()) == "RAW";
  }

  detail::FileBytes file_;
  TfRecordOptions options_;
  std::vector<std::int64_t> starts_;
  ImageSpec spec_;
};

class TfRecordWriter final : public SampleWriter {
 public:
  explicit TfRecordWriter(const std::filesystem::path& path) : file_(path) {}

  void add(const StoredSample& sample) override {
    detail::check_sample(sample, count_, "tfrecord");
    const char* format = sample.codec == Codec::jpeg ? "JPEG" : sample.codec == Codec::png ? "PNG" : "RAW";
    ATH_CHECK(sample.codec != Codec::jpeg || begins_with(sample.bytes, "\xff\xd8\xff"),
              "tfrecord: a jpeg sample must begin as JPEG files do, but sample {} does not", count_);
    ATH_CHECK(sample.codec != Codec::png || begins_with(sample.bytes, "\x89PNG\r\n\x1a\n"),
              "tfrecord: a png sample must begin as PNG files do, but sample {} does not", count_);
    using Strings = std::vector<std::span<const std::byte>>;
    using Ints = std::vector<std::int64_t>;
    FeatureMap features{{"image/encoded", Strings{sample.bytes}},
                        {"image/format", Strings{detail::bytes_of(format)}},
                        {"image/class/label", Ints{sample.label}}};
    if (sample.codec == Codec::raw) {
      features["image/height"] = Ints{sample.height};
      features["image/width"] = Ints{sample.width};
      features["image/channels"] = Ints{sample.channels};
    }
    const std::vector<std::byte> record = write_example(features);
    const auto length = detail::stored_le(static_cast<std::uint64_t>(record.size()));
    file_.write(length);
    file_.write(detail::stored_le(masked_crc(length)));
    file_.write(record);
    file_.write(detail::stored_le(masked_crc(record)));
    ++count_;
  }

  void finish() override {
    if (count_ == 0) detail::fail_no_sample("tfrecord");
    file_.commit();
  }

 private:
  detail::OutputFile file_;
  std::int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_tfrecord(const std::filesystem::path& path, const TfRecordOptions& options) {
  return std::make_unique<TfRecordStore>(path, options);
}

std::unique_ptr<SampleWriter> create_tfrecord(const std::filesystem::path& path) {
  return std::make_unique<TfRecordWriter>(path);
}

}  // namespace athanor
