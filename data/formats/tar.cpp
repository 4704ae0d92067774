#include "data/formats/tar.h"

#include <algorithm>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/kept_index.h"
#include "data/formats/detail/label_columns.h"
#include "data/formats/detail/labelled_store.h"
#include "data/formats/detail/tar_reader.h"
#include "data/formats/detail/writing.h"
#include "data/formats/join.h"
#include "data/sample_weights.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor {
namespace {

using detail::FileBytes;
using detail::TableRow;
using detail::TarReader;
using nlohmann::json;
using Row = detail::SampleTable::Row;

constexpr std::int64_t kBlock = 512, kMaxText = 1 << 20;

/// "a/b.seg.png" belongs to sample "a/b", as its "seg.png".
std::pair<std::string, std::string> split_name(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
  if (dot == std::string::npos) return {name, {}};
  return {name.substr(0, dot), detail::lower_case(name.substr(dot + 1))};
}

/// The content of a .cls or .json.
std::string_view read_text(const FileBytes& file, const TarReader& tar, const std::string& suffix,
                           std::vector<std::byte>& scratch) {
  if (tar.size() > kMaxText) {
    tar.fail(tar.offset(), "a .{} file must have at most {} bytes, but has {}", suffix, kMaxText, tar.size());
  }
  return detail::text_of(file.at(tar.offset(), tar.size(), "a label", scratch));
}

std::int64_t read_cls(const TarReader& tar, std::string_view text) {
  if (const std::optional<std::int64_t> label = detail::whole_number(text)) return *label;
  tar.fail(tar.offset(), "a .cls file must contain a whole number, but contains '{}'",
           detail::printable(detail::trimmed(text)));
}

/// nullopt if the object has no such key: then a .cls is required.
std::optional<std::int64_t> read_json(const TarReader& tar, std::string_view text, const std::string& key) {
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object()) tar.fail(tar.offset(), "a .json file must be an object, but is not");
  const auto at = all.find(key);
  if (at == all.end()) return std::nullopt;
  if (!at->is_number_integer() || (at->is_number_unsigned() && at->get<std::uint64_t>() > INT64_MAX)) {
    tar.fail(tar.offset(), "\"{}\" must be a whole number, but is not", key);
  }
  return at->get<std::int64_t>();
}

/// The object of a .json, with its keys in order. Deeper nested values are in no column.
Row read_row(const TarReader& tar, std::string_view text) {
  const auto is_flat = [](int depth, Row::parse_event_t, Row&) { return depth < 64; };
  Row all = Row::parse(text, is_flat, false);
  if (!all.is_object()) tar.fail(tar.offset(), "a .json file must be an object, but is not");
  return all;
}

/// Groups the members of each name; -1 marks a sample's missing image or label.
class Index {
 public:
  /// `has_rows`: of a label, all of a .json or the text of a .cls is kept, as a row of a table.
  Index(const FileBytes& file, const FieldNames& names, bool has_rows = false)
      : file_(file), label_key_(names.label.empty() ? "label" : names.label), has_rows_(has_rows) {}

  detail::SampleIndex build(bool keep_damaged) {
    TarReader tar(file_);
    std::string damage;
    while (next(tar, keep_damaged ? &damage : nullptr)) add(tar);
    add_unused(unused_, tar.unused());
    if (!damage.empty()) {
      drop_incomplete();
      if (samples_.empty()) detail::fail<IoError>("{}", damage);
    }
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (samples_[i].offset < 0) {
        file_.fail(first_members_[i],
                   "the label of {} must have a .jpg, .jpeg, .png or .webp of the same name, but has none",
                   name_of(i));
      }
      if (samples_[i].label < 0) {
        file_.fail(
            first_members_[i],
            "the image of {} must have a .cls of the same name, or a .json with \"{}\", but has neither",
            name_of(i), label_key_);
      }
    }
    if (samples_.empty())
      file_.fail(0, "the archive must contain at least one .jpg, .jpeg, .png or .webp, but has {}",
                 unused_.empty() ? "none" : "only " + text_of(unused_));
    return {.entries = std::move(samples_),
            .class_names = tar.class_names(),
            .unused = std::move(unused_),
            .whole = damage.empty(),
            .damage = damage};
  }

  /// Of each sample, in order.
  std::vector<TableRow> take_rows() { return std::move(rows_); }

 private:
  /// Also false where the archive is damaged, if `damage` takes the reason.
  static bool next(TarReader& tar, std::string* damage) {
    try {
      return tar.next();
    } catch (const IoError& error) {
      if (!damage) throw;
      *damage = error.what();
      return false;
    }
  }

  /// Samples of which the damage has cut off a part.
  void drop_incomplete() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (samples_[i].offset < 0 || samples_[i].label < 0) continue;
      samples_[kept] = samples_[i];
      if (has_rows_) std::swap(rows_[kept], rows_[i]);
      ++kept;
    }
    samples_.resize(kept);
    if (has_rows_) rows_.resize(kept);
  }

  void add(const TarReader& tar) {
    const auto [name, suffix] = split_name(tar.name());
    const bool whole = suffix.find('.') == std::string::npos;  // "seg.png" is not the sample's image
    const std::optional<Codec> codec = whole ? detail::codec_named("." + suffix) : std::nullopt;
    if (!codec && suffix != "cls" && suffix != "json") {
      const bool is_image = detail::codec_named(tar.name()).has_value();
      return count_unused(unused_,
                          is_image ? "further images, of samples whose name ends at its first dot"
                                   : "members of another type",
                          tar.name());
    }
    const auto [at, is_new] = known_.try_emplace(name, samples_.size());
    if (is_new) {
      samples_.push_back({-1, 0, -1, Codec::png});
      first_members_.push_back(tar.offset());
      if (has_rows_) rows_.push_back({Row::object(), fmt::format("offset {}", tar.offset())});
    }
    detail::IndexEntry& sample = samples_[at->second];
    if (!codec) {
      const std::string_view text = read_text(file_, tar, suffix, scratch_);
      if (has_rows_) {
        Row& row = rows_[at->second].row;
        suffix == "cls" ? void(row["label"] = std::string(detail::trimmed(text)))
                        : row.update(read_row(tar, text));
        sample.label = 0;
        return;
      }
      const std::optional<std::int64_t> label =
          suffix == "cls" ? read_cls(tar, text) : read_json(tar, text, label_key_);
      if (label) add_label(sample, *label, tar);
      return;
    }
    if (sample.offset >= 0) {
      tar.fail(tar.offset(), "a sample must have one image, but has a second one");
    }
    if (tar.size() == 0) tar.fail(tar.offset(), "an image must not be empty, but is");
    sample = {tar.offset(), tar.size(), sample.label, *codec};
  }

  void add_label(detail::IndexEntry& sample, std::int64_t label, const TarReader& tar) const {
    if (const auto bad = detail::bad_label(label)) tar.fail(tar.offset(), "{}", *bad);
    if (sample.label >= 0 && sample.label != label) {
      tar.fail(tar.offset(), "a sample must have one label, but has {} and {}", sample.label, label);
    }
    sample.label = label;
  }

  std::string name_of(std::size_t sample) const {
    const auto at =
        std::find_if(known_.begin(), known_.end(), [&](const auto& one) { return one.second == sample; });
    return detail::printable(at->first);
  }

  const FileBytes& file_;
  const std::string label_key_;
  const bool has_rows_;
  std::vector<TableRow> rows_;  // of samples_
  std::vector<Unused> unused_;
  std::unordered_map<std::string, std::size_t> known_;  // by the name of the sample
  std::vector<detail::IndexEntry> samples_;
  std::vector<std::int64_t> first_members_;
  std::vector<std::byte> scratch_;
};

class TarWriter final : public SampleWriter {
 public:
  TarWriter(const std::filesystem::path& path, const std::vector<std::string>& class_names) : file_(path) {
    std::string comments;
    for (const std::string& name : class_names)
      comments += detail::pax_record("comment", detail::kTarClass + percent_encoded(name));
    if (!comments.empty()) member("classes", detail::bytes_of(comments), 'g');
  }

  void add(const StoredSample& sample) override {
    detail::check_sample(sample, count_, "tar");
    ATH_CHECK(sample.codec != Codec::raw,
              "tar: the archive holds JPEG, PNG and WebP only, but sample {} is raw; encode it first, or "
              "write a format that holds raw images: packed, TFRecord or npz",
              count_);
    const std::string name = fmt::format("{:09}", count_);
    member(name + "." + detail::suffix_of(sample.codec), sample.bytes);
    member(name + ".cls", detail::bytes_of(std::to_string(sample.label)));
    ++count_;
  }

  void finish() override {
    detail::check_some(count_, "tar");
    // Two blocks of zeros, padded to tar's record size.
    constexpr std::int64_t kRecord = 20 * kBlock;
    const std::int64_t size = (file_.size() + 2 * kBlock + kRecord - 1) / kRecord * kRecord;
    file_.write(std::vector<std::byte>(static_cast<std::size_t>(size - file_.size())));
    file_.commit();
  }

 private:
  void member(const std::string& name, std::span<const std::byte> content, char type = '0') {
    std::string header(kBlock, '\0');
    const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, fmt::format("{:011o}", content.size()));
    put(136, "00000000000");
    put(148, "        ");
    put(156, std::string(1, type));
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

std::unique_ptr<Dataset> open_tar(const std::filesystem::path& path, const FieldNames& names,
                                  bool keep_damaged) {
  const auto file = std::make_shared<FileBytes>(path, "tar", "write the archive again, or remove it");
  file->must_not_be_compressed();
  detail::SampleIndex index = detail::kept_index(*file, fmt::format("tar, label={}", names.label),
                                                 [&] { return Index(*file, names).build(keep_damaged); });
  const std::string damage = std::move(index.damage);
  const Unused unused = damaged_file(file->name(), detail::samples_behind(*file, index.entries));
  return with_unreadable(std::make_unique<detail::IndexedStore>(file, std::move(index), detail::ReadEntry()),
                         damage, unused);
}

std::unique_ptr<Dataset> open_tar_labels(const std::filesystem::path& path, const TableOptions& options,
                                         bool keep_damaged) {
  const auto file = std::make_shared<FileBytes>(path, "tar", "write the archive again, or remove it");
  file->must_not_be_compressed();
  Index builder(*file, options.fields, true);
  detail::SampleIndex index = builder.build(keep_damaged);
  std::vector<TableRow> rows = builder.take_rows();
  for (TableRow& one : rows)
    one.row[options.fields.image.empty() ? "image" : options.fields.image] = file->name();
  const detail::LabelColumns columns(rows, options, fmt::format("tar: {}", file->name()), path);
  std::vector<float> labels;
  std::size_t each = 0;
  for (const TableRow& row : rows) {
    const Row numbers = columns.sample(row)[kLabelsField];
    if (each == 0) each = numbers.size();
    if (numbers.empty() || numbers.size() != each)
      detail::fail<IoError>("tar: {}, {}: must have {} labels or values, as the first sample, but has {}",
                            file->name(), row.where, each, numbers.size());
    for (const Row& number : numbers) labels.push_back(number.get<float>());
  }
  add_unused(index.unused, columns.unused());
  if (rows[0].row.contains(kWeightField))
    count_unused(index.unused, "column of weights, which only tables can have", kWeightField);
  index.class_names.clear();
  const std::string damage = std::move(index.damage);
  const Unused unused = damaged_file(file->name(), detail::samples_behind(*file, index.entries));
  std::vector<std::string> names = columns.names();
  if (names.size() != each) names.clear();
  return with_unreadable(
      detail::with_labels(std::make_unique<detail::IndexedStore>(file, std::move(index), detail::ReadEntry()),
                          std::move(labels), std::move(names)),
      damage, unused);
}

std::unique_ptr<SampleWriter> create_tar(const std::filesystem::path& path,
                                         const std::vector<std::string>& class_names) {
  return std::make_unique<TarWriter>(path, class_names);
}

}  // namespace athanor
