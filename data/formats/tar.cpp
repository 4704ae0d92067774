#include "data/formats/tar.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/tar_reader.h"
#include "data/formats/detail/writing.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using nlohmann::json;

constexpr std::int64_t kBlock = 512, kMaxJson = 1 << 20;

/// "a/b.seg.png" is of the sample "a/b", and is its "seg.png".
std::pair<std::string, std::string> split_name(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
  if (dot == std::string::npos) return {name, {}};
  std::string suffix = name.substr(dot + 1);
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return {name.substr(0, dot), std::move(suffix)};
}

class TarStore final : public Dataset {
 public:
  TarStore(const std::filesystem::path& path, const TarOptions& options)
      : file_(path, "tar", "write the archive again, or leave it out"), options_(options) {
    detail::check_classes(options_.classes, "tar");
    refuse_compressed();
    index();
    std::vector<std::int64_t> labels;
    for (const Sample& sample : samples_) labels.push_back(sample.label);
    spec_.classes = detail::count_classes(labels, options_.classes);
  }

  std::int64_t size() const override { return std::ssize(samples_); }
  const ImageSpec& spec() const override { return spec_; }
  std::string where(std::int64_t i) const override { return file_.where(sample(i).offset); }
  bool resident() const override { return true; }
  StoredSample fetch(std::int64_t i, std::vector<std::byte>& /*scratch*/) const override {
    const Sample& s = sample(i);
    return {file_.at(s.offset, s.bytes, "an image"), s.codec, 0, 0, 0, s.label};
  }
  void will_need(std::int64_t first, std::int64_t count) const override {
    const std::int64_t end = first < 0 ? 0 : first + std::min(count, size() - first);
    for (std::int64_t i = first; i < end; ++i) file_.will_need(sample(i).offset, sample(i).bytes);
  }

 private:
  struct Sample {
    std::int64_t offset = -1, bytes = 0;
    std::int64_t label = -1;
    std::int64_t first_member = 0;
    Codec codec = Codec::jpeg;
  };

  const Sample& sample(std::int64_t i) const {
    detail::check_index(i, size(), "store");
    return samples_[static_cast<std::size_t>(i)];
  }

  void refuse_compressed() const {
    const std::string_view start = detail::text_of(file_.bytes()).substr(0, 6);
    constexpr std::pair<std::string_view, const char*> kMagics[] = {{"\x1f\x8b", "gunzip"},
                                                                    {"\x28\xb5\x2f\xfd", "unzstd"},
                                                                    {"BZh", "bunzip2"},
                                                                    {"\xfd"
                                                                     "7zXZ",
                                                                     "unxz"}};
    for (const auto& [magic, program] : kMagics) {
      if (start.starts_with(magic)) {
        file_.fail(
            0,
            fmt::format("the archive must not be compressed, so that samples can be read in any order: {} it "
                        "first",
                        program));
      }
    }
  }

  void index() {
    std::unordered_map<std::string, std::size_t> known;  // by the name of the sample
    detail::TarReader tar(file_);
    while (tar.next()) {
      const auto [name, suffix] = split_name(tar.name());
      const bool is_jpeg = suffix == "jpg" || suffix == "jpeg", is_image = is_jpeg || suffix == "png";
      const bool is_label = suffix == "cls" || suffix == "json";
      if (!is_image && !is_label) continue;
      const auto [at, is_new] = known.try_emplace(name, samples_.size());
      if (is_new) samples_.emplace_back().first_member = tar.offset();
      Sample& sample = samples_[at->second];
      if (is_image) {
        if (sample.offset >= 0) {
          file_.fail(tar.offset(), fmt::format("a sample must have one image, but {} is another of it",
                                               detail::printable(tar.name())));
        }
        if (tar.size() == 0) file_.fail(tar.offset(), "an image must not be empty, but is");
        sample.offset = tar.offset();
        sample.bytes = tar.size();
        sample.codec = is_jpeg ? Codec::jpeg : Codec::png;
        continue;
      }
      const std::int64_t label = suffix == "cls" ? read_cls(tar) : read_json(tar);
      if (label < 0) continue;
      if (sample.label >= 0 && sample.label != label) {
        file_.fail(tar.offset(),
                   fmt::format("a sample must have one label, but has {} and {}", sample.label, label));
      }
      sample.label = label;
    }
    for (const Sample& sample : samples_) {
      if (sample.offset < 0) {
        file_.fail(sample.first_member,
                   "the label here must have a .jpg, .jpeg or .png of its name, but has none");
      }
      if (sample.label < 0) {
        file_.fail(sample.first_member,
                   fmt::format("the image here must have a .cls of its name, or a .json with \"{}\" "
                               "in it, but has neither",
                               options_.label_key));
      }
    }
    if (samples_.empty()) file_.fail(0, "there must be at least one .jpg, .jpeg or .png, but there is none");
  }

  std::int64_t checked(std::int64_t label, std::int64_t offset) const {
    if (const auto bad = detail::bad_label(label, options_.classes)) file_.fail(offset, *bad);
    return label;
  }

  std::int64_t read_cls(const detail::TarReader& tar) const {
    std::string_view text = detail::text_of(file_.at(tar.offset(), tar.size(), "a label"));
    constexpr std::string_view kSpace = " \t\r\n";
    text = text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
    text = text.substr(0, text.find_last_not_of(kSpace) + 1);
    std::int64_t label = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
      file_.fail(tar.offset(),
                 fmt::format("a .cls must hold a whole number, but holds '{}'", detail::printable(text)));
    }
    return checked(label, tar.offset());
  }

  /// -1 where the object has no such entry: then a .cls must be there.
  std::int64_t read_json(const detail::TarReader& tar) const {
    if (tar.size() > kMaxJson) {
      file_.fail(tar.offset(),
                 fmt::format("a .json must have at most {} bytes, but has {}", kMaxJson, tar.size()));
    }
    const json text =
        json::parse(detail::text_of(file_.at(tar.offset(), tar.size(), "JSON")), nullptr, false);
    if (!text.is_object()) file_.fail(tar.offset(), "a .json must be an object, but is not");
    const auto at = text.find(options_.label_key);
    if (at == text.end()) return -1;
    if (!at->is_number_integer() || (at->is_number_unsigned() && at->get<std::uint64_t>() > INT64_MAX)) {
      file_.fail(tar.offset(), fmt::format("\"{}\" must be a whole number, but is not", options_.label_key));
    }
    return checked(at->get<std::int64_t>(), tar.offset());
  }

  detail::FileBytes file_;
  TarOptions options_;
  ImageSpec spec_;
  std::vector<Sample> samples_;
};

class TarWriter final : public SampleWriter {
 public:
  explicit TarWriter(const std::filesystem::path& path) : file_(path) {}

  void add(const StoredSample& sample) override {
    ATH_CHECK(sample.codec != Codec::raw,
              "tar: holds JPEG and PNG only, but sample {} is raw; encode it first, or write a format that "
              "holds raw "
              "images: packed, TFRecord, LMDB or npz",
              count_);
    detail::check_sample(sample, count_, "tar");
    const std::string name = fmt::format("{:09}", count_);
    member(name + (sample.codec == Codec::jpeg ? ".jpg" : ".png"), sample.bytes);
    member(name + ".cls", detail::bytes_of(std::to_string(sample.label)));
    ++count_;
  }

  void finish() override {
    if (count_ == 0) detail::fail_no_sample("tar");
    // Two blocks of zeros, and more up to the record that tar reads at a time.
    constexpr std::int64_t kRecord = 20 * kBlock;
    const std::int64_t size = (file_.size() + 2 * kBlock + kRecord - 1) / kRecord * kRecord;
    file_.write(std::vector<std::byte>(static_cast<std::size_t>(size - file_.size())));
    file_.commit();
  }

 private:
  void member(const std::string& name, std::span<const std::byte> content) {
    std::string header(kBlock, '\0');
    const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, fmt::format("{:011o}", content.size()));
    put(136, "00000000000");
    put(148, "        ");
    put(156, "0");
    put(257, std::string("ustar\00000", 8));
    std::uint32_t sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    file_.write(detail::bytes_of(header));
    file_.write(content);
    file_.write(
        std::vector<std::byte>(static_cast<std::size_t>((kBlock - std::ssize(content) % kBlock) % kBlock)));
  }

  detail::OutputFile file_;
  std::int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_tar(const std::filesystem::path& path, const TarOptions& options) {
  return std::make_unique<TarStore>(path, options);
}

std::unique_ptr<SampleWriter> create_tar(const std::filesystem::path& path) {
  return std::make_unique<TarWriter>(path);
}

}  // namespace athanor
