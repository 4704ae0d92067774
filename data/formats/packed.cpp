#include "data/formats/packed.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "data/detail/thread_scratch.h"
#include "data/formats/crc32c.h"
#include "data/formats/detail/packed_layout.h"
#include "data/label_kind.h"
#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tensor/io/pooled_file.h"

namespace athanor {
namespace {

using packed::Entry, packed::Header;

constexpr char kPackedAdvice[] = "pack it again, or fetch another copy";

/// Local file systems: with others, a mapping may fail at any time.
bool is_local(int file) {
  struct statfs system {};
  if (::fstatfs(file, &system) != 0) return false;
  switch (static_cast<std::uint32_t>(system.f_type)) {
    case 0xef53:                   // ext2, ext3, ext4
    case 0x58465342:               // XFS
    case 0x9123683e:               // Btrfs
    case 0x2fc12fc1:               // ZFS
    case 0xf2f52010:               // F2FS
    case 0x01021994:               // tmpfs
    case 0x858458f6:               // ramfs
    case 0x794c7630:               // overlayfs
    case 0x73717368:               // squashfs
    case 0xe0f5e1e2: return true;  // EROFS
    default: return false;
  }
}

/// Fetching memory takes as long as the following system call, so small samples are prefetched first. (A
/// prefetch of unmapped memory has no effect. Always inline: GCC 12 drops calls of a function that does
/// nothing else.)
[[gnu::always_inline]] inline void prefetch(std::span<const std::byte> bytes) {
  constexpr std::size_t kLine = 64, kMax = 4096;  // beyond, the CPU's own prefetcher suffices
  for (std::size_t at = 0; at < std::min(bytes.size(), kMax); at += kLine)
    __builtin_prefetch(bytes.data() + at, 0, 2);
}

constexpr auto kRaw = static_cast<std::uint32_t>(Codec::raw), kLast = static_cast<std::uint32_t>(Codec::webp);

bool is_raw_size(const Entry& entry) {
  // Each factor fits 32 bits; the product of two of them fits 64.
  const packed::Form& form = entry.form;
  const std::uint64_t area = std::uint64_t{form.height} * form.width;
  return area != 0 && form.channels != 0 && area <= entry.length && area * form.channels == entry.length;
}

}  // namespace

PackedStore::PackedStore(const std::filesystem::path& path, const PackedOptions& options)
    : path_(path),
      check_(options.check),
      file_(std::make_unique<PooledFile>(path)),
      header_(std::make_unique<Header>()) {
  read_head();
  read_tail();
  check_entries();
  map_data(options.access);
}

PackedStore::~PackedStore() {
  if (mapped()) ::munmap(const_cast<std::byte*>(map_.data()), map_.size());
}

bool PackedStore::recognises(const std::filesystem::path& path) {
  std::array<std::byte, 8> first{};
  return RegularFile(path).read_at(0, first) == first.size() && packed::has_header_magic(first);
}

/// Reads the header and checks that its sizes fit the file, so that no read is out of range.
void PackedStore::read_head() {
  const auto length = static_cast<std::uint64_t>(open_file()->bytes());
  packed::HeaderBytes bytes{};
  read_at(0, std::span(bytes).first(std::min<std::uint64_t>(length, bytes.size())), "the header");
  if (!packed::has_header_magic(bytes)) fail(0, "must be a packed file, but does not start like one");
  const std::uint64_t least = packed::kHeaderBytes + packed::kFooterBytes;
  if (length < least) {
    fail(length, fmt::format("must have at least {} bytes, but the file ends after {}", least, length));
  }
  Header& header = *header_;
  header = packed::decode_header(bytes);
  compare("the header", 0, bytes.size(), packed::stored_crc(bytes), packed::own_crc(bytes));
  const bool fields = header.version == packed::kFieldsVersion;
  if ((header.version != packed::kVersion && !fields) || header.byte_order != packed::kByteOrder) {
    fail(8, fmt::format("must have version {} or {}, but has {}: a newer Athanor wrote it", packed::kVersion,
                        packed::kFieldsVersion, header.version));
  }
  // Each size fits in the file, so their sum cannot overflow.
  const bool sizes =
      header.page_bytes >= packed::kMinPageBytes && header.page_bytes <= packed::kMaxPageBytes &&
      (header.page_bytes & (header.page_bytes - 1)) == 0 &&
      (header.entry_bytes == packed::kShortEntry || header.entry_bytes == packed::kLongEntry) &&
      header.data_bytes <= length && header.data_bytes % packed::kAlignment == 0 &&
      header.pages == (header.data_bytes + header.page_bytes - 1) / header.page_bytes &&
      header.samples <= length / header.entry_bytes && header.name_bytes <= length &&
      header.field_bytes <= length && fields == (header.field_bytes > 0) &&
      header.classes <= packed::kMaxClasses;
  // Sizes common to all samples can be checked without the entries.
  const bool same = header.samples > 0 && header.entry_bytes == packed::kShortEntry;
  const bool form = header.form == packed::Form{} || (same && header.form.codec <= kLast);
  if (!sizes || !form) fail(32, "the header's numbers must fit the file, but contradict it");
  if (header.file_bytes() != length) {
    fail(std::min(length, header.file_bytes()),
         fmt::format("must have {} bytes, but has {}: the file is {}", header.file_bytes(), length,
                     length < header.file_bytes() ? "truncated" : "followed by other data"));
  }
}

void PackedStore::read_tail() {
  const Header& header = *header_;
  packed::FooterBytes footer_bytes;
  read_at(header.footer_offset(), footer_bytes, "the footer");
  const packed::Footer footer = packed::decode_footer(footer_bytes);
  if (!packed::has_footer_magic(footer_bytes)) fail(header.footer_offset(), "must be a footer, but is none");
  compare("the footer", header.footer_offset(), footer_bytes.size(), footer.own_crc,
          packed::own_crc(footer_bytes));
  if (footer.index_offset != header.index_offset() || footer.names_offset != header.names_offset() ||
      footer.page_crcs_offset != header.page_crcs_offset() || footer.file_bytes != header.file_bytes()) {
    fail(header.footer_offset() + 8, "header and footer must name the same offsets, but do not");
  }
  tail_.resize(header.footer_offset() - header.index_offset());
  read_at(header.index_offset(), tail_, "the index");
  const auto checked = [&](const char* what, std::uint64_t from, std::uint64_t to, std::uint32_t stored) {
    const std::span<const std::byte> bytes = tail(from, to);
    compare(what, from, bytes.size(), stored, crc32c(bytes));
    return bytes;
  };
  checked("the index", header.index_offset(), header.names_offset(), footer.index_crc);
  const std::span<const std::byte> all_names =
      checked("the class names", header.names_offset(), header.page_crcs_offset(), footer.names_crc);
  const auto names = all_names.first(header.name_bytes), fields = all_names.subspan(header.name_bytes);
  checked("the page CRCs", header.page_crcs_offset(), header.footer_offset(), footer.page_crcs_crc);
  if (!packed::decode_names(names, header.classes, class_names_)) {
    fail(header.names_offset(), fmt::format("must name {} classes, but does not", header.classes));
  }
  if (fields.empty()) return;
  fields_ = packed::decode_fields(fields);
  more_ = static_cast<std::size_t>(std::ranges::count_if(fields_, packed::is_more));
  if (fields_.empty())
    fail(header.names_offset() + header.name_bytes, "must be a table of fields with an image, but is not");
}

/// Undamaged files may still violate the format.
void PackedStore::check_entries() {
  const Header& header = *header_;
  const std::uint64_t data_end = header.index_offset();
  std::uint64_t free = packed::kHeaderBytes;  // first byte after the samples so far
  for (std::int64_t i = 0; i < size(); ++i) {
    const Entry entry = this->entry(i);
    const bool inside = entry.offset % packed::kAlignment == 0 && entry.offset >= free &&
                        entry.offset <= data_end && entry.length <= data_end - entry.offset &&
                        packed::may_lie_at(entry.offset, entry.length, header.page_bytes);
    // With several fields, a sample's parts are checked when it is read.
    const bool formed =
        entry.form.codec <= kLast && (entry.form.codec != kRaw || more_ > 0 || is_raw_size(entry));
    if (!inside || entry.label >= header.classes || !formed) {
      fail(
          header.index_offset() + static_cast<std::uint64_t>(i) * header.entry_bytes,
          fmt::format("sample {} must lie in the data after the previous sample, have a label below {} and a "
                      "size that fits its format, but its index entry says otherwise",
                      i, header.classes));
    }
    free = entry.offset + entry.length;
  }
  const auto is_labels = [&](const FieldSpec& field) {
    return field.name == "label" || (field.name == kLabelsField && field.dtype == DType::f32 &&
                                     field.shape == Shape{static_cast<std::int64_t>(header.classes)});
  };
  const bool labelled = fields_.empty() || std::ranges::any_of(fields_, is_labels);
  spec_.classes = labelled ? static_cast<std::int64_t>(header.classes) : 0;
  if (header.form.codec == kRaw) {
    spec_.height = header.form.height;
    spec_.width = header.form.width;
    spec_.channels = header.form.channels;
  }
}

void PackedStore::map_data(PackedAccess access) {
  if (access == PackedAccess::automatic) {  // decoding takes long enough for the file to become shorter
    const bool is_raw = spec_.height > 0;
    access = is_raw && is_local(open_file()->descriptor()) ? PackedAccess::map : PackedAccess::read;
  }
  if (access == PackedAccess::read || header_->data_bytes == 0) return;
  void* const at =
      ::mmap(nullptr, header_->index_offset(), PROT_READ, MAP_SHARED, open_file()->descriptor(), 0);
  if (at == MAP_FAILED) return;  // a file system that cannot: reads
  map_ = {static_cast<const std::byte*>(at), header_->index_offset()};
}

Entry PackedStore::entry(std::int64_t index) const {
  ATH_CHECK(index >= 0 && index < size(), "packed file: index must be in [0, {}), but got {}", size(), index);
  return packed::decode_entry(tail_.data() + static_cast<std::uint64_t>(index) * header_->entry_bytes,
                              header_->entry_bytes, header_->form);
}

StoredSample PackedStore::fetch(std::int64_t index, std::vector<std::byte>& scratch) const {
  const Entry entry = this->entry(index);
  StoredSample sample{{},
                      static_cast<Codec>(entry.form.codec),
                      entry.form.height,
                      entry.form.width,
                      entry.form.channels,
                      static_cast<std::int64_t>(entry.label)};
  // The array for StoredSample::more is also in the scratch, after the bytes if those are there.
  const std::size_t own = mapped() ? 0 : packed::align_up(entry.length, alignof(std::max_align_t));
  if (const std::size_t needed = own + more_ * sizeof(StoredField); scratch.size() < needed) [[unlikely]]
    scratch.resize(needed);
  if (mapped()) {
    sample.bytes = map_.subspan(entry.offset, entry.length);
    prefetch(sample.bytes);
    check_length();
  } else {
    const auto bytes = std::span(scratch).first(entry.length);
    read_at(entry.offset, bytes, "a sample");
    sample.bytes = bytes;
  }
  if (check_) {
    if (const std::uint32_t crc = crc32c(sample.bytes); crc != entry.crc) [[unlikely]] {
      fail(entry.offset, fmt::format("the CRC of sample {} ({} bytes) must be {:08x}, but is {:08x}", index,
                                     entry.length, entry.crc, crc));
    }
  }
  if (more_ > 0) {
    auto* const more = reinterpret_cast<StoredField*>(scratch.data() + own);
    std::uninitialized_default_construct_n(more, more_);
    if (!packed::divide_fields(sample, {more, more_})) [[unlikely]]
      fail(entry.offset, fmt::format("the bytes of sample {} must split into its fields, but do not", index));
  }
  return sample;
}

std::uint64_t PackedStore::sample_id(std::int64_t index) const {
  const Entry entry = this->entry(index);
  kernels::HashOf hash;
  hash.add(entry.length, entry.crc, entry.label);
  return hash.value();
}

std::optional<std::int64_t> PackedStore::image_bytes(std::int64_t index) const {
  if (more_ == 0) return length(index);
  detail::ThreadScratch scratch;
  return std::ssize(fetch(index, scratch.bytes()).bytes);
}

std::int64_t PackedStore::label(std::int64_t index) const {
  return entry(index).label;
}

std::string PackedStore::where(std::int64_t index) const {
  return fmt::format("{}, offset {}", path_.string(), entry(index).offset);
}

void PackedStore::will_need(std::int64_t first, std::int64_t count) const {
  first = std::max<std::int64_t>(first, 0);
  count = std::min(count, size() - first);
  if (count <= 0) return;
  const Entry last = entry(first + count - 1);
  const std::uint64_t begin = entry(first).offset / 4096 * 4096, end = last.offset + last.length;
  // Only a hint: failures do no harm.
  if (mapped()) {
    ::madvise(const_cast<std::byte*>(map_.data()) + begin, end - begin, MADV_WILLNEED);
  } else if (std::string ignored; const std::shared_ptr<const RegularFile> file = file_->open(ignored)) {
    ::posix_fadvise(file->descriptor(), static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                    POSIX_FADV_WILLNEED);
  }
}

std::shared_ptr<const RegularFile> PackedStore::open_file() const {
  std::string problem;
  std::shared_ptr<const RegularFile> file = file_->open(problem);
  if (!file) fail(0, problem);
  return file;
}

void PackedStore::check_length() const {
  std::string problem;
  const std::int64_t length = file_->bytes_now(problem);
  if (length < 0) [[unlikely]]
    fail(0, problem);
  if (length < std::ssize(map_)) [[unlikely]] {
    fail(static_cast<std::uint64_t>(length),
         fmt::format("must keep its {} bytes, but was truncated to {} while open", header_->file_bytes(),
                     length));
  }
}

void PackedStore::read_at(std::uint64_t offset, std::span<std::byte> to, const char* what) const {
  const std::shared_ptr<const RegularFile> file = open_file();
  const std::size_t got = file->read_at(offset, to);
  if (got == to.size()) return;
  fail(offset + got,
       errno != 0 ? fmt::format("cannot read {}: {}", what, std::strerror(errno))
                  : fmt::format("{} must have {} more bytes, but the file ends", what, to.size() - got));
}

void PackedStore::compare(const char* what, std::uint64_t offset, std::uint64_t bytes, std::uint32_t stored,
                          std::uint32_t crc) const {
  if (crc == stored) return;
  fail(offset, fmt::format("the CRC of {} (bytes {} to {}) must be {:08x}, but is {:08x}", what, offset,
                           offset + bytes, stored, crc));
}

std::span<const std::byte> PackedStore::tail(std::uint64_t from, std::uint64_t to) const {
  return std::span(tail_).subspan(from - header_->index_offset(), to - from);
}

void PackedStore::fail(std::uint64_t offset, const std::string& message) const {
  detail::fail<IoError>("packed file: {}, offset {}: {}; {}", path_.string(), offset, message, kPackedAdvice);
}

std::int64_t PackedStore::size() const {
  return static_cast<std::int64_t>(header_->samples);
}
std::string PackedStore::content_id() const {
  return packed::hex(header_->content_id);
}
std::int64_t PackedStore::file_bytes() const {
  return static_cast<std::int64_t>(header_->file_bytes());
}
std::int64_t PackedStore::data_bytes() const {
  return static_cast<std::int64_t>(header_->data_bytes);
}
std::int64_t PackedStore::page_bytes() const {
  return static_cast<std::int64_t>(header_->page_bytes);
}
std::int64_t PackedStore::length(std::int64_t index) const {
  return entry(index).length;
}
std::int64_t PackedStore::offset(std::int64_t index) const {
  return static_cast<std::int64_t>(entry(index).offset);
}

}  // namespace athanor
