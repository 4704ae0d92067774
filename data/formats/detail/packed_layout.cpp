#include "data/formats/detail/packed_layout.h"

#include <algorithm>
#include <concepts>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/sample_row.h"
#include "tensor/base/error.h"
#include "tensor/io/sha256.h"

namespace athanor::packed {
namespace {

// As in PNG: a non-ASCII byte, and line ends that a text-mode transfer would change.
constexpr std::array<unsigned char, 8> kHeaderMagic{0x93, 'A', 'T', 'H', 'P', '\r', '\n', 0x1a};
constexpr std::array<unsigned char, 8> kFooterMagic{0x93, 'A', 'T', 'H', 'E', 'N', 'D', '\n'};

bool starts_with(std::span<const std::byte> bytes, const std::array<unsigned char, 8>& magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

/// Writes consecutive fields, from `at` on.
class Put {
 public:
  explicit Put(std::byte* at) : at_(at) {}
  void operator()(const auto&... fields) { (one(fields), ...); }

 private:
  void one(std::unsigned_integral auto value) { one(std::span<const std::byte>(detail::stored_le(value))); }
  void one(std::span<const std::byte> bytes) { at_ = std::copy(bytes.begin(), bytes.end(), at_); }

  std::byte* at_;
};

/// Reads them back.
class Get {
 public:
  explicit Get(const std::byte* at) : at_(at) {}
  void operator()(auto&... fields) { (one(fields), ...); }

 private:
  void one(std::unsigned_integral auto& value) {
    value = detail::load_le<std::remove_reference_t<decltype(value)>>({at_, sizeof value});
    at_ += sizeof value;
  }
  void one(std::span<std::byte> bytes) {
    std::copy_n(at_, bytes.size(), bytes.begin());
    at_ += bytes.size();
  }

  const std::byte* at_;
};

// The fields in file order, for Put and for Get.

void visit_header(auto& header, auto fields) {
  auto& form = header.form;
  fields(header.version, header.byte_order, header.content_id, header.samples, header.page_bytes,
         header.data_bytes, header.pages, header.classes, header.entry_bytes);
  fields(form.codec, form.height, form.width, form.channels, header.reserved, header.name_bytes,
         header.field_bytes);
}

void visit_footer(auto& footer, auto fields) {
  fields(footer.index_offset, footer.names_offset, footer.page_crcs_offset, footer.file_bytes);
  fields(footer.header_crc, footer.index_crc, footer.names_crc, footer.page_crcs_crc, footer.reserved,
         footer.own_crc);
}

void visit_entry(auto& entry, std::uint32_t entry_bytes, auto fields) {
  auto& form = entry.form;
  fields(entry.offset, entry.length, entry.crc, entry.label);
  if (entry_bytes == kLongEntry) fields(form.codec, form.height, form.width, form.channels);
}

}  // namespace

bool has_header_magic(std::span<const std::byte> first) {
  return starts_with(first, kHeaderMagic);
}

bool has_footer_magic(std::span<const std::byte, kFooterBytes> bytes) {
  return starts_with(bytes, kFooterMagic);
}

std::uint32_t own_crc(std::span<const std::byte> bytes) {
  return crc32c(bytes.first(bytes.size() - 4));
}

std::uint32_t stored_crc(std::span<const std::byte> bytes) {
  return detail::load_le<std::uint32_t>(bytes.last(4));
}

HeaderBytes encode(const Header& header) {
  HeaderBytes bytes{};
  std::memcpy(bytes.data(), kHeaderMagic.data(), kHeaderMagic.size());
  visit_header(header, Put(bytes.data() + kHeaderMagic.size()));
  Put(bytes.data() + kHeaderBytes - 4)(own_crc(bytes));
  return bytes;
}

Header decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  Header header;
  visit_header(header, Get(bytes.data() + kHeaderMagic.size()));
  return header;
}

FooterBytes encode(const Footer& footer) {
  FooterBytes bytes{};
  std::memcpy(bytes.data(), kFooterMagic.data(), kFooterMagic.size());
  visit_footer(footer, Put(bytes.data() + kFooterMagic.size()));
  Put(bytes.data() + kFooterBytes - 4)(own_crc(bytes));
  return bytes;
}

Footer decode_footer(std::span<const std::byte, kFooterBytes> bytes) {
  Footer footer;
  visit_footer(footer, Get(bytes.data() + kFooterMagic.size()));
  return footer;
}

void append(std::vector<std::byte>& index, const Entry& entry, std::uint32_t entry_bytes) {
  index.resize(index.size() + entry_bytes);
  visit_entry(entry, entry_bytes, Put(index.data() + index.size() - entry_bytes));
}

Entry decode_entry(const std::byte* at, std::uint32_t entry_bytes, const Form& common) {
  Entry entry;
  entry.form = common;
  visit_entry(entry, entry_bytes, Get(at));
  return entry;
}

std::vector<std::byte> encode_names(const std::vector<std::string>& names) {
  std::vector<std::byte> bytes;
  for (const std::string& name : names) {
    bytes.resize(bytes.size() + 4 + name.size());
    Put(bytes.data() + bytes.size() - name.size() - 4)(static_cast<std::uint32_t>(name.size()),
                                                       detail::bytes_of(name));
  }
  return bytes;
}

bool decode_names(std::span<const std::byte> bytes, std::uint64_t count, std::vector<std::string>& names) {
  names.clear();
  if (bytes.empty()) return true;
  while (!bytes.empty()) {
    if (bytes.size() < 4 || names.size() == count) return false;
    const auto length = detail::load_le<std::uint32_t>(bytes);
    bytes = bytes.subspan(4);
    if (length > bytes.size()) return false;
    names.emplace_back(detail::text_of(bytes.first(length)));
    bytes = bytes.subspan(length);
  }
  return names.size() == count;
}

std::vector<std::byte> encode_fields(const std::vector<FieldSpec>& fields) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const FieldSpec& field : fields) {
    all.push_back({{"name", field.name},
                   {"dtype", name_of(field.dtype)},
                   {"shape", std::vector<std::int64_t>(field.shape.begin(), field.shape.end())},
                   {"kind", name_of(field.kind)}});
  }
  const std::string text = all.dump();
  const auto bytes = detail::bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

std::vector<FieldSpec> decode_fields(std::span<const std::byte> bytes) {
  constexpr std::size_t kMaxSides = 8;
  constexpr std::int64_t kMaxSide = std::int64_t{1} << 31;
  std::vector<FieldSpec> fields;
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(detail::text_of(bytes))) {
      FieldSpec field{.name = entry.at("name").get<std::string>()};
      const auto dtype = dtype_named(entry.at("dtype").get<std::string>());
      const auto kind = field_kind_named(entry.at("kind").get<std::string>());
      const nlohmann::json& shape = entry.at("shape");
      if (!dtype || !kind || !shape.is_array() || shape.size() > kMaxSides) return {};
      std::int64_t elements = 1;
      for (const nlohmann::json& side : shape) {
        const auto length = side.is_number_integer() ? side.get<std::int64_t>() : -1;
        if (length < 0 || length > kMaxSide) return {};
        field.shape.push_back(length);
        elements *= length;
        if (elements > kMaxSide) return {};
      }
      field.dtype = *dtype;
      field.kind = *kind;
      fields.push_back(std::move(field));
    }
    check_field_names(fields);
  } catch (const nlohmann::json::exception&) {
    return {};
  } catch (const ArgumentError&) {
    return {};
  }
  return fields;
}

void join_fields(const StoredSample& sample, std::vector<std::byte>& bytes) {
  bytes.clear();
  std::vector<std::byte> parts;
  const auto add = [&](const StoredField& field) {
    bytes.resize(align_up(bytes.size(), 8));
    bytes.insert(bytes.end(), field.bytes.begin(), field.bytes.end());
    parts.resize(parts.size() + kPartBytes);
    const auto narrow = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    Put(parts.data() + parts.size() - kPartBytes)(
        narrow(std::ssize(field.bytes)), static_cast<std::uint32_t>(field.codec), narrow(field.height),
        narrow(field.width), narrow(field.channels));
  };
  add({sample.bytes, sample.codec, sample.height, sample.width, sample.channels});
  for (const StoredField& field : sample.more) add(field);
  bytes.insert(bytes.end(), parts.begin(), parts.end());
}

bool divide_fields(StoredSample& sample, std::span<StoredField> more) {
  const std::size_t table = (1 + more.size()) * kPartBytes;
  if (sample.bytes.size() < table) return false;
  const std::size_t end = sample.bytes.size() - table;
  std::size_t at = 0;
  StoredField field;
  const std::span<const std::byte> all = sample.bytes;
  for (std::size_t i = 0; i <= more.size(); ++i) {
    std::uint32_t length = 0;
    Form form;
    Get(all.data() + end + i * kPartBytes)(length, form.codec, form.height, form.width, form.channels);
    at = align_up(at, 8);
    if (at > end || length > end - at || form.codec > static_cast<std::uint32_t>(Codec::webp)) return false;
    field = {all.subspan(at, length), static_cast<Codec>(form.codec), form.height, form.width, form.channels};
    at += length;
    if (i > 0) {
      more[i - 1] = field;
      continue;
    }
    const std::uint64_t area = std::uint64_t{form.height} * form.width;
    const bool whole = area != 0 && area <= length && area * form.channels == length;
    const bool as_indexed = field.codec == sample.codec && field.height == sample.height &&
                            field.width == sample.width && field.channels == sample.channels;
    if ((field.codec == Codec::raw && !whole) || !as_indexed) return false;
    sample.bytes = field.bytes;
  }
  sample.more = more;
  return true;
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

}  // namespace athanor::packed
