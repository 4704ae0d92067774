#include "data/formats/packed_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/packed_layout.h"
#include "data/sample_row.h"
#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"

namespace athanor {

using packed::Entry;

namespace {

constexpr std::int64_t kMax = UINT32_MAX;

}  // namespace

/// Consecutive pages without a sample across either boundary: one page, or the pages of a larger sample and
/// what fits after it. The caller decides the layout; the thread that seals a chunk only computes CRCs and
/// writes.
struct PackedWriter::Chunk {
  std::uint64_t offset = 0;  // in the file
  std::vector<std::byte> bytes;
  std::vector<Entry> entries;
  std::vector<std::uint32_t> page_crcs;
};

PackedWriter::PackedWriter(const std::filesystem::path& path, PackedWriterOptions options)
    : options_(std::move(options)), end_(packed::kHeaderBytes), classes_(options_.classes) {
  const auto page = static_cast<std::uint64_t>(options_.page_bytes);
  ATH_CHECK(page >= packed::kMinPageBytes && page <= packed::kMaxPageBytes && (page & (page - 1)) == 0,
            "packed file: page_bytes must be a power of two from {} to {}, but got {}", packed::kMinPageBytes,
            packed::kMaxPageBytes, options_.page_bytes);
  ATH_CHECK(options_.threads >= 0 && options_.threads <= 1024,
            "packed file: threads must be in [0, 1024], but got {}", options_.threads);
  ATH_CHECK(classes_ >= 0 && classes_ <= static_cast<std::int64_t>(packed::kMaxClasses),
            "packed file: classes must be in [0, {}], but got {}", packed::kMaxClasses, classes_);
  const std::int64_t names = std::ssize(options_.class_names);
  ATH_CHECK(names == 0 || classes_ == 0 || classes_ == names,
            "packed file: class names must be empty or one for each of {} classes, but there are {}",
            classes_, names);
  if (names > 0) options_.classes = classes_ = names;
  std::vector<FieldSpec>& fields = options_.fields;
  if (!fields.empty()) check_field_names(fields);
  std::ranges::copy_if(fields, std::back_inserter(more_), packed::is_more);
  if (more_.empty() && fields.size() == 2) fields = {};  // only image and label: version 1
  file_ = std::make_unique<AtomicFile>(path);
}

PackedWriter::~PackedWriter() = default;

void PackedWriter::check(const StoredSample& sample) const {
  const auto classes =
      options_.classes > 0 ? options_.classes : static_cast<std::int64_t>(packed::kMaxClasses);
  ATH_CHECK(sample.label >= 0 && sample.label < classes,
            "packed file: the label of sample {} must be in [0, {}), but got {}", samples_, classes,
            sample.label);
  ATH_CHECK(sample.more.size() == more_.size(),
            "packed file: sample {} must have {} fields besides image and label, but has {}", samples_,
            more_.size(), sample.more.size());
  ATH_CHECK(sample.stored_bytes() <= kMax,
            "packed file: sample {} must have less than 4 GiB, but has {} bytes", samples_,
            sample.stored_bytes());
  const StoredField image{sample.bytes, sample.codec, sample.height, sample.width, sample.channels};
  check_sides("image", image);
  for (std::size_t i = 0; i < more_.size(); ++i) {
    const auto bytes = std::ssize(sample.more[i].bytes);
    check_sides(more_[i].name, sample.more[i]);
    ATH_CHECK(sample.more[i].codec != Codec::raw || more_[i].bytes() == 0 || more_[i].bytes() == bytes,
              "packed file: '{}' of sample {} must have {} bytes, but has {}", more_[i].name, samples_,
              more_[i].bytes(), bytes);
  }
  if (sample.codec != Codec::raw) return;
  // Neither product can overflow: the first factors fit in 32 bits, and the area fits in the sample.
  const std::int64_t h = sample.height, w = sample.width, c = sample.channels;
  const std::int64_t bytes = std::ssize(sample.bytes);
  ATH_CHECK(bytes > 0 && h > 0 && w > 0 && h <= bytes / w && c <= bytes && h * w * c == bytes,
            "packed file: sample {} must have height x width x channels bytes, but has {}x{}x{} and {} bytes",
            samples_, h, w, c, bytes);
}

void PackedWriter::check_sides(const std::string& name, const StoredField& field) const {
  const auto fits = [](std::int64_t side) { return side >= 0 && side <= kMax; };
  ATH_CHECK(
      fits(field.height) && fits(field.width) && fits(field.channels),
      "packed file: height, width and channels of '{}' of sample {} must be in [0, {}], but are {}x{}x{}",
      name, samples_, kMax, field.height, field.width, field.channels);
}

void PackedWriter::add(const StoredSample& sample) {
  ATH_CHECK(!finished_, "packed file: add() must be called before finish()");
  check(sample);
  std::span<const std::byte> bytes = sample.bytes;
  if (!more_.empty()) {
    packed::join_fields(sample, joined_);
    bytes = joined_;
    ATH_CHECK(std::ssize(bytes) <= kMax, "packed file: sample {} must have less than 4 GiB, but has {} bytes",
              samples_, bytes.size());
  }
  const auto page = static_cast<std::uint64_t>(options_.page_bytes);
  std::uint64_t offset = packed::align_up(end_, packed::kAlignment);
  if (!packed::may_lie_at(offset, bytes.size(), page)) {
    offset = packed::kHeaderBytes + packed::align_up(offset - packed::kHeaderBytes, page);
  }
  if (chunks_.empty() || (offset - packed::kHeaderBytes) % page == 0) begin_chunk(offset);
  Chunk& chunk = chunks_.back();
  chunk.bytes.resize(offset - chunk.offset);
  chunk.bytes.insert(chunk.bytes.end(), bytes.begin(), bytes.end());
  chunk.entries.push_back(
      {offset,
       static_cast<std::uint32_t>(bytes.size()),
       0,
       static_cast<std::uint64_t>(sample.label),
       {static_cast<std::uint32_t>(sample.codec), static_cast<std::uint32_t>(sample.height),
        static_cast<std::uint32_t>(sample.width), static_cast<std::uint32_t>(sample.channels)}});
  end_ = offset + bytes.size();
  if (options_.classes == 0) classes_ = std::max(classes_, sample.label + 1);
  ++samples_;
}

/// Ends the previous chunk, if any, at `offset`. An empty sample may begin a page without filling any of it:
/// then the chunk continues.
void PackedWriter::begin_chunk(std::uint64_t offset) {
  if (!chunks_.empty()) {
    if (chunks_.back().offset == offset) return;
    end_chunk(offset - chunks_.back().offset);
  }
  chunks_.emplace_back();
  chunks_.back().offset = offset;
  chunks_.back().bytes.reserve(static_cast<std::size_t>(options_.page_bytes));
}

/// Pads the current chunk to `bytes`, and seals it.
void PackedWriter::end_chunk(std::uint64_t bytes) {
  Chunk& chunk = chunks_.back();
  chunk.bytes.resize(bytes);
  const bool here = options_.threads == 0;
  for (; std::ssize(sealing_) >= std::max(options_.threads, 1); sealing_.pop_front()) sealing_.front().get();
  sealing_.push_back(
      std::async(here ? std::launch::deferred : std::launch::async, [this, &chunk] { seal(chunk); }));
  if (here) sealing_.front().get();
}

void PackedWriter::seal(Chunk& chunk) const {
  const auto all = std::span<const std::byte>(chunk.bytes);
  for (Entry& entry : chunk.entries)
    entry.crc = crc32c(all.subspan(entry.offset - chunk.offset, entry.length));
  const auto page = static_cast<std::size_t>(options_.page_bytes);
  for (std::size_t at = 0; at < all.size(); at += page) {
    chunk.page_crcs.push_back(crc32c(all.subspan(at, std::min(page, all.size() - at))));
  }
  file_->write_at(chunk.offset, all);
  chunk.bytes = {};
}

void PackedWriter::finish() {
  ATH_CHECK(!finished_, "packed file: finish() must be called once");
  finished_ = true;
  packed::Header header;
  header.data_bytes = packed::align_up(end_, packed::kAlignment) - packed::kHeaderBytes;
  if (!chunks_.empty()) end_chunk(packed::kHeaderBytes + header.data_bytes - chunks_.back().offset);
  for (const std::shared_future<void>& chunk : sealing_) chunk.get();

  bool uniform = true;
  std::vector<std::byte> page_crcs;
  for (const Chunk& chunk : chunks_) {
    for (const Entry& entry : chunk.entries)
      uniform = uniform && entry.form == chunks_.front().entries.front().form;
    for (const std::uint32_t crc : chunk.page_crcs) {
      for (const std::byte byte : detail::stored_le(crc)) page_crcs.push_back(byte);
    }
  }
  const auto page = static_cast<std::uint64_t>(options_.page_bytes);
  header.samples = static_cast<std::uint64_t>(samples_);
  header.page_bytes = page;
  header.pages = (header.data_bytes + page - 1) / page;
  header.classes = static_cast<std::uint64_t>(classes_);
  header.entry_bytes = uniform ? packed::kShortEntry : packed::kLongEntry;
  if (uniform && samples_ > 0) header.form = chunks_.front().entries.front().form;

  std::vector<std::byte> index;
  index.reserve(static_cast<std::size_t>(samples_) * header.entry_bytes);
  for (const Chunk& chunk : chunks_) {
    for (const Entry& entry : chunk.entries) packed::append(index, entry, header.entry_bytes);
  }
  std::vector<std::byte> names = packed::encode_names(options_.class_names);
  header.name_bytes = names.size();
  if (!options_.fields.empty()) {
    const std::vector<std::byte> fields = packed::encode_fields(options_.fields);
    header.version = packed::kFieldsVersion;
    header.field_bytes = fields.size();
    names.insert(names.end(), fields.begin(), fields.end());
  }
  header.content_id = packed::content_id(header, index, names, page_crcs);
  const packed::HeaderBytes header_bytes = encode(header);
  const packed::Footer footer{header.index_offset(), header.names_offset(), header.page_crcs_offset(),
                              header.file_bytes(),   crc32c(header_bytes),  crc32c(index),
                              crc32c(names),         crc32c(page_crcs)};
  file_->write_at(header.index_offset(), index);
  file_->write_at(header.names_offset(), names);
  file_->write_at(header.page_crcs_offset(), page_crcs);
  file_->write_at(header.footer_offset(), encode(footer));
  file_->write_at(0, header_bytes);
  file_->commit();
  content_id_ = packed::hex(header.content_id);
  file_bytes_ = static_cast<std::int64_t>(header.file_bytes());
}

}  // namespace athanor
