#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

// The bytes of a packed file, specified in docs/reference/packed_file.md: header, data, index, class names,
// page CRCs, footer. All numbers little-endian.

namespace athanor::packed {

using ContentId = std::array<std::byte, 16>;

inline constexpr std::uint64_t kHeaderBytes = 4096, kFooterBytes = 64, kAlignment = 64;
inline constexpr std::uint64_t kMinPageBytes = 4096, kMaxPageBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxClasses = std::uint64_t{1} << 31;
/// Version 1 has an image and a label per sample, version 2 the fields of its table.
inline constexpr std::uint32_t kVersion = 1, kFieldsVersion = 2, kByteOrder = 0x01020304;
/// Sizes of an index entry, if all samples share codec and size, and otherwise.
inline constexpr std::uint32_t kShortEntry = 24, kLongEntry = 40;
inline constexpr std::uint32_t kVaries = 255;  ///< instead of a codec

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

/// False if a sample would straddle a page: it fits into one but not at this offset, or it is larger and
/// starts inside one.
constexpr bool may_lie_at(std::uint64_t offset, std::uint64_t length, std::uint64_t page_bytes) {
  const std::uint64_t in_page = (offset - kHeaderBytes) % page_bytes;
  return in_page == 0 || length <= page_bytes - in_page;
}

/// Properties of a sample that may be common to all.
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
  std::uint64_t field_bytes = 0;  ///< of the field table after the class names; 0 in version 1

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
  std::uint32_t own_crc = 0;  ///< of the preceding footer bytes; encode() computes it
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;
using FooterBytes = std::array<std::byte, kFooterBytes>;

bool has_header_magic(std::span<const std::byte> first);
bool has_footer_magic(std::span<const std::byte, kFooterBytes> bytes);

/// Encodes with a CRC of the rest in the last 4 bytes; decodes without checking it.
HeaderBytes encode(const Header& header);
Header decode_header(std::span<const std::byte, kHeaderBytes> bytes);
FooterBytes encode(const Footer& footer);
Footer decode_footer(std::span<const std::byte, kFooterBytes> bytes);
/// The expected and the stored value of that CRC.
std::uint32_t own_crc(std::span<const std::byte> bytes);
std::uint32_t stored_crc(std::span<const std::byte> bytes);

/// Appends, and decodes, an index entry of `entry_bytes`; a short one has the form `common`.
void append(std::vector<std::byte>& index, const Entry& entry, std::uint32_t entry_bytes);
Entry decode_entry(const std::byte* at, std::uint32_t entry_bytes, const Form& common);

/// Each class name as its length (u32) and its bytes; empty without names. decode_names() returns false if
/// `bytes` are not `count` of them.
std::vector<std::byte> encode_names(const std::vector<std::string>& names);
bool decode_names(std::span<const std::byte> bytes, std::uint64_t count, std::vector<std::string>& names);

/// The table of fields, as JSON. decode_fields() returns none if `bytes` are not such a table, or
/// check_field_names() refuses it.
std::vector<std::byte> encode_fields(const std::vector<FieldSpec>& fields);
std::vector<FieldSpec> decode_fields(std::span<const std::byte> bytes);
/// Whether a field is not in version 1.
inline bool is_more(const FieldSpec& field) {
  return field.name != "image" && field.name != "label";
}

/// In version 2, the bytes of a sample are its image and its other fields, each aligned to 8, then for each
/// of these its length and form, kPartBytes. divide_fields() replaces such bytes by those of the image and
/// fills `more`; false if they are invalid.
inline constexpr std::size_t kPartBytes = 20;
void join_fields(const StoredSample& sample, std::vector<std::byte>& bytes);
bool divide_fields(StoredSample& sample, std::span<StoredField> more);

/// The expected content id: of everything after the data, and of the header without the id.
ContentId content_id(Header header, std::span<const std::byte> index, std::span<const std::byte> names,
                     std::span<const std::byte> page_crcs);
std::string hex(const ContentId& id);

}  // namespace athanor::packed
