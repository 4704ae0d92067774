#include "data/formats/detail/packed_layout.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>

#include <fmt/format.h>

#include "data/formats/crc32c.h"
#include "tensor/detail/sha256.h"

namespace athanor::packed {
namespace {

// As in PNG: a byte that is not ASCII, and ends of lines that a transfer as text would change.
constexpr unsigned char kHeaderMagic[8] = {0x93, 'A', 'T', 'H', 'P', '\r', '\n', 0x1a};
constexpr unsigned char kFooterMagic[8] = {0x93, 'A', 'T', 'H', 'E', 'N', 'D', '\n'};

constexpr std::size_t kContentIdAt = 16;

bool starts_with(std::span<const std::byte> bytes, const unsigned char (&magic)[8]) {
  return bytes.size() >= sizeof magic && std::memcmp(bytes.data(), magic, sizeof magic) == 0;
}

template <std::unsigned_integral T> T get(const std::byte* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(std::to_integer<T>(at[i]) << 8 * i);
  return value;
}

/// Fields one after the other.
class Cursor {
 public:
  explicit Cursor(std::byte* at) : at_(at) {}
  template <std::unsigned_integral T> void put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) *at_++ = static_cast<std::byte>(value >> 8 * i);
  }
  void put(std::span<const std::byte> bytes) { at_ = std::copy(bytes.begin(), bytes.end(), at_); }
  void put(const unsigned char (&magic)[8]) { put(std::as_bytes(std::span(magic))); }

 private:
  std::byte* at_;
};

class ReadCursor {
 public:
  explicit ReadCursor(const std::byte* at) : at_(at) {}
  template <std::unsigned_integral T> void get(T& value) {
    value = packed::get<T>(at_);
    at_ += sizeof(T);
  }
  void skip(std::size_t bytes) { at_ += bytes; }

 private:
  const std::byte* at_;
};

}  // namespace

bool has_header_magic(std::span<const std::byte> first) {
  return starts_with(first, kHeaderMagic);
}

bool has_footer_magic(std::span<const std::byte, kFooterBytes> bytes) {
  return starts_with(bytes, kFooterMagic);
}

HeaderBytes encode(const Header& header) {
  HeaderBytes bytes{};
  Cursor to(bytes.data());
  to.put(kHeaderMagic);
  to.put(header.version);
  to.put(header.byte_order);
  to.put(header.content_id);
  to.put(header.samples);
  to.put(header.page_bytes);
  to.put(header.data_bytes);
  to.put(header.pages);
  to.put(header.classes);
  to.put(header.entry_bytes);
  to.put(std::uint32_t{header.form.codec});
  to.put(header.form.height);
  to.put(header.form.width);
  to.put(header.form.channels);
  to.put(std::uint32_t{0});
  to.put(header.name_bytes);
  Cursor(bytes.data() + kHeaderBytes - 4).put(header_crc(bytes));
  return bytes;
}

Header decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  Header header;
  ReadCursor from(bytes.data() + sizeof kHeaderMagic);
  from.get(header.version);
  from.get(header.byte_order);
  std::copy_n(bytes.data() + kContentIdAt, header.content_id.size(), header.content_id.begin());
  from.skip(header.content_id.size());
  from.get(header.samples);
  from.get(header.page_bytes);
  from.get(header.data_bytes);
  from.get(header.pages);
  from.get(header.classes);
  from.get(header.entry_bytes);
  from.get(header.form.codec);
  from.skip(3);
  from.get(header.form.height);
  from.get(header.form.width);
  from.get(header.form.channels);
  from.skip(4);
  from.get(header.name_bytes);
  return header;
}

std::uint32_t header_crc(std::span<const std::byte, kHeaderBytes> bytes) {
  return crc32c(bytes.first(kHeaderBytes - 4));
}

FooterBytes encode(const Footer& footer) {
  FooterBytes bytes{};
  Cursor to(bytes.data());
  to.put(kFooterMagic);
  to.put(footer.index_offset);
  to.put(footer.names_offset);
  to.put(footer.page_crcs_offset);
  to.put(footer.file_bytes);
  to.put(footer.header_crc);
  to.put(footer.index_crc);
  to.put(footer.names_crc);
  to.put(footer.page_crcs_crc);
  to.put(std::uint32_t{0});
  to.put(footer_crc(bytes));
  return bytes;
}

Footer decode_footer(std::span<const std::byte, kFooterBytes> bytes) {
  Footer footer;
  ReadCursor from(bytes.data() + sizeof kFooterMagic);
  from.get(footer.index_offset);
  from.get(footer.names_offset);
  from.get(footer.page_crcs_offset);
  from.get(footer.file_bytes);
  from.get(footer.header_crc);
  from.get(footer.index_crc);
  from.get(footer.names_crc);
  from.get(footer.page_crcs_crc);
  from.skip(4);
  from.get(footer.own_crc);
  return footer;
}

std::uint32_t footer_crc(std::span<const std::byte, kFooterBytes> bytes) {
  return crc32c(bytes.first(kFooterBytes - 4));
}

void append(std::vector<std::byte>& index, const Entry& entry, std::uint32_t entry_bytes) {
  const std::size_t at = index.size();
  index.resize(at + entry_bytes);
  Cursor to(index.data() + at);
  to.put(entry.offset);
  to.put(entry.length);
  to.put(entry.crc);
  to.put(static_cast<std::uint64_t>(entry.label));
  if (entry_bytes == kShortEntry) return;
  to.put(std::uint32_t{entry.form.codec});
  to.put(entry.form.height);
  to.put(entry.form.width);
  to.put(entry.form.channels);
}

Entry decode_entry(const std::byte* at, std::uint32_t entry_bytes, const Form& common) {
  Entry entry;
  entry.form = common;
  ReadCursor from(at);
  std::uint64_t label;
  from.get(entry.offset);
  from.get(entry.length);
  from.get(entry.crc);
  from.get(label);
  entry.label = static_cast<std::int64_t>(label);
  if (entry_bytes == kShortEntry) return entry;
  from.get(entry.form.codec);
  from.skip(3);
  from.get(entry.form.height);
  from.get(entry.form.width);
  from.get(entry.form.channels);
  return entry;
}

std::vector<std::byte> encode_names(const std::vector<std::string>& names) {
  std::vector<std::byte> bytes;
  for (const std::string& name : names) {
    const std::size_t at = bytes.size();
    bytes.resize(at + 4 + name.size());
    Cursor to(bytes.data() + at);
    to.put(static_cast<std::uint32_t>(name.size()));
    to.put(std::as_bytes(std::span(name)));
  }
  return bytes;
}

bool decode_names(std::span<const std::byte> bytes, std::uint64_t count, std::vector<std::string>& names) {
  names.clear();
  if (bytes.empty()) return true;
  while (!bytes.empty()) {
    if (bytes.size() < 4 || names.size() == count) return false;
    const std::uint32_t length = u32_at(bytes.data());
    bytes = bytes.subspan(4);
    if (length > bytes.size()) return false;
    names.emplace_back(reinterpret_cast<const char*>(bytes.data()), length);
    bytes = bytes.subspan(length);
  }
  return names.size() == count;
}

ContentId content_id(Header header, std::span<const std::byte> index, std::span<const std::byte> names,
                     std::span<const std::byte> page_crcs) {
  header.content_id = {};
  Sha256 hash;
  hash.add(encode(header));
  hash.add(index);
  hash.add(names);
  hash.add(page_crcs);
  const auto digest = hash.digest();
  ContentId id;
  std::copy_n(digest.begin(), id.size(), id.begin());
  return id;
}

std::string hex(const ContentId& id) {
  std::string text;
  for (const std::byte byte : id) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

std::vector<std::byte> encode_u32(std::span<const std::uint32_t> values) {
  std::vector<std::byte> bytes(values.size() * 4);
  Cursor to(bytes.data());
  for (const std::uint32_t value : values) to.put(value);
  return bytes;
}

std::uint32_t u32_at(const std::byte* at) {
  return get<std::uint32_t>(at);
}

}  // namespace athanor::packed
