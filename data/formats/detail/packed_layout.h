#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

// The bytes of a packed file, which docs/packed_file.md lays out: header, data, index, class names, page
// CRCs, footer. All numbers little-endian.

namespace athanor::packed {

using ContentId = std::array<std::byte, 16>;

inline constexpr std::uint64_t kHeaderBytes = 4096, kFooterBytes = 64, kAlignment = 64;
inline constexpr std::uint64_t kMinPageBytes = 4096, kMaxPageBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxClasses = std::uint64_t{1} << 31;
/// Version 1 holds an image and a label for each sample, version 2 the fields that its table names.
inline constexpr std::uint32_t kVersion = 1, kFieldsVersion = 2, kByteOrder = 0x01020304;
/// Of an index entry where all samples have one codec and size, and where they do not.
inline constexpr std::uint32_t kShortEntry = 24, kLongEntry = 40;
inline constexpr std::uint32_t kVaries = 255;  ///< instead of a codec

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

/// False where a sample would straddle a page: it fits one, but not where it lies, or does not fit and starts
/// within one.
constexpr bool may_lie_at(std::uint64_t offset, std::uint64_t length, std::uint64_t page_bytes) {
  const std::uint64_t in_page = (offset - kHeaderBytes) % page_bytes;
  return in_page == 0 || length <= page_bytes - in_page;
}

/// What of a sample may be the same for all.
struct Form {
  std::uint32_t codec = kVaries;
  std::uint32_t height = 0, width = 0, channels = 0;
  bool operator==(const Form&) const = default;
};

struct Entry {
  std::uint64_t offset = 0;  ///< in the file
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
  std::uint64_t label = 0;
  Form form;
};

struct Header {
  std::uint32_t version = kVersion;
  std::uint32_t byte_order = kByteOrder;
  ContentId content_id{};
  std::uint64_t samples = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t pages = 0;
  std::uint64_t classes = 0;
  std::uint32_t entry_bytes = kShortEntry;
  Form form;
  std::uint32_t reserved = 0;
  std::uint64_t name_bytes = 0;
  std::uint64_t field_bytes = 0;  ///< of the table of fields behind the class names; 0 in version 1

  std::uint64_t index_offset() const { return kHeaderBytes + data_bytes; }
  std::uint64_t names_offset() const { return index_offset() + samples * entry_bytes; }
  std::uint64_t page_crcs_offset() const { return names_offset() + name_bytes + field_bytes; }
  std::uint64_t footer_offset() const { return page_crcs_offset() + pages * 4; }
  std::uint64_t file_bytes() const { return footer_offset() + kFooterBytes; }
};

struct Footer {
  std::uint64_t index_offset = 0, names_offset = 0, page_crcs_offset = 0, file_bytes = 0;
  std::uint32_t header_crc = 0, index_crc = 0, names_crc = 0, page_crcs_crc = 0;
  std::uint32_t reserved = 0;
  std::uint32_t own_crc = 0;  ///< of the footer's bytes before it; encode() computes it
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;
using FooterBytes = std::array<std::byte, kFooterBytes>;

bool has_header_magic(std::span<const std::byte> first);
bool has_footer_magic(std::span<const std::byte, kFooterBytes> bytes);

/// With a CRC of the rest in the last 4 bytes, and back (whatever the CRC).
HeaderBytes encode(const Header& header);
Header decode_header(std::span<const std::byte, kHeaderBytes> bytes);
FooterBytes encode(const Footer& footer);
Footer decode_footer(std::span<const std::byte, kFooterBytes> bytes);
/// What that CRC must be, and what it is.
std::uint32_t own_crc(std::span<const std::byte> bytes);
std::uint32_t stored_crc(std::span<const std::byte> bytes);

/// Appends an index entry of `entry_bytes`, and reads one; where it is short, the form is `common`.
void append(std::vector<std::byte>& index, const Entry& entry, std::uint32_t entry_bytes);
Entry decode_entry(const std::byte* at, std::uint32_t entry_bytes, const Form& common);

/// Each class name as its length (u32) and its bytes; nothing where there are none. decode_names() returns
/// false where `bytes` are not `count` of them.
std::vector<std::byte> encode_names(const std::vector<std::string>& names);
bool decode_names(std::span<const std::byte> bytes, std::uint64_t count, std::vector<std::string>& names);

/// The table of fields, as JSON. decode_fields() gives none where `bytes` are no such table, or one that
/// check_field_names() has something against.
std::vector<std::byte> encode_fields(const std::vector<FieldSpec>& fields);
std::vector<FieldSpec> decode_fields(std::span<const std::byte> bytes);
/// Whether a field is none of those that version 1 has.
inline bool is_more(const FieldSpec& field) {
  return field.name != "image" && field.name != "label";
}

/// Of version 2, the bytes of a sample: its image and its other fields, each from a multiple of 8 on, and
/// then for each of them its length and form, kPartBytes. divide_fields() makes of a sample with all of these
/// as its bytes one with those of its image, and with `more`; false where they are not so.
inline constexpr std::size_t kPartBytes = 20;
void join_fields(const StoredSample& sample, std::vector<std::byte>& bytes);
bool divide_fields(StoredSample& sample, std::span<StoredField> more);

/// What the content id must be: of all that follows the data, and the header without the id.
ContentId content_id(Header header, std::span<const std::byte> index, std::span<const std::byte> names,
                     std::span<const std::byte> page_crcs);
std::string hex(const ContentId& id);

}  // namespace athanor::packed
