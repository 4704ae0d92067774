#include "data/formats/detail/tar_reader.h"

#include <algorithm>
#include <charconv>

#include "data/formats/detail/bytes.h"

namespace athanor::detail {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr std::int64_t kMaxNameBytes = 1 << 16;
// Header fields: offsets and lengths.
constexpr std::int64_t kName = 0, kNameLength = 100, kSize = 124, kSizeLength = 12, kSum = 148,
                       kSumLength = 8;
constexpr std::int64_t kType = 156, kUstarMagic = 257, kPrefix = 345, kPrefixLength = 155;

/// Text up to the first zero byte.
std::string_view text_field(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  return text.substr(0, text.find('\0'));
}

/// All of `text` as a number >= 0; nullopt if invalid or out of range.
std::optional<std::int64_t> whole_number(std::string_view text, int base) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && value >= 0;
  return whole && text.front() != '-' ? std::optional(value) : std::nullopt;
}

}  // namespace

bool TarReader::next() {
  long_name_.clear();
  pax_size_.reset();
  for (;;) {
    const std::int64_t header = at_;
    const std::span<const std::byte> block =
        file_.at(header, kBlock, "a member's header, or the zeros at the end,");
    if (text_of(block).find_first_not_of('\0') == std::string_view::npos) return false;
    check_sum(header);
    const auto type = std::to_integer<char>(block[kType]);
    size_ = number(header + kSize, kSizeLength, "a member's size");
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (is_file) size_ = pax_size_.value_or(size_);
    if (type >= '1' && type <= '6') size_ = 0;  // links, devices and folders
    offset_ = header + kBlock;
    file_.at(offset_, size_, "a member");
    // Its end padded to a block. The last padding may be missing: missing final zeros are detected.
    at_ = offset_ + size_ + (kBlock - size_ % kBlock) % kBlock;
    if (type == 'S') fail_sparse(header);
    if (type == 'L') {
      if (size_ > kMaxNameBytes) {
        file_.fail(header, "a name must have at most {} bytes, but has {}", kMaxNameBytes, size_);
      }
      long_name_ = text_field(file_.at(offset_, size_, "a long name"));
      continue;
    }
    if (type == 'x') {
      read_pax();
      continue;
    }
    if (is_file) {
      name_ = long_name_;
      if (name_.empty()) {
        const bool ustar = text_of(block.subspan(kUstarMagic, 6)) == std::string_view("ustar\0", 6);
        if (ustar) name_ = text_field(block.subspan(kPrefix, kPrefixLength));
        if (!name_.empty()) name_ += '/';
        name_ += text_field(block.subspan(kName, kNameLength));
      }
      // Before ustar, a trailing slash marked a folder.
      if (!name_.ends_with('/')) return true;
    }
    // 'L' and 'x' apply only to the next member; a global header and a link's long name are not members.
    if (type != 'g' && type != 'K') {
      long_name_.clear();
      pax_size_.reset();
    }
  }
}

/// Checks the sum of the header's bytes, with the checksum field counted as spaces.
void TarReader::check_sum(std::int64_t header) const {
  std::string block(text_of(file_.at(header, kBlock, "a header")));
  block.replace(kSum, kSumLength, kSumLength, ' ');
  std::int64_t sum = 0, as_signed = 0;  // some old programs summed signed bytes
  for (const char c : block) {
    sum += static_cast<unsigned char>(c);
    as_signed += static_cast<signed char>(c);
  }
  const std::int64_t stated = number(header + kSum, kSumLength, "a header's checksum");
  if (stated != sum && stated != as_signed) {
    file_.fail(header,
               "a header's checksum must be {}, but is {}: this is not a tar archive, or a damaged one", sum,
               stated);
  }
}

std::int64_t TarReader::number(std::int64_t at, std::int64_t length, const char* what) const {
  const std::span<const std::byte> field = file_.at(at, length, what);
  if (std::to_integer<int>(field[0]) == 0x80) {  // GNU: big-endian, for sizes beyond the octal digits
    std::int64_t value = 0;
    for (const std::byte byte : field.subspan(1)) {
      if (__builtin_mul_overflow(value, 256, &value))
        file_.fail(at, "{} must be below 2^63, but is not", what);
      value += std::to_integer<int>(byte);
    }
    return value;
  }
  std::string_view text = text_field(field);
  text = text.substr(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  const std::optional<std::int64_t> value = text.empty() ? 0 : whole_number(text, 8);
  if (!value) file_.fail(at, "{} must be octal digits, but is not", what);
  return *value;
}

/// Records "LENGTH KEY=VALUE\n"; uses `path` and `size`.
void TarReader::read_pax() {
  const std::int64_t end = offset_ + size_;
  for (std::int64_t at = offset_; at < end;) {
    const std::string_view rest = text_of(file_.at(at, end - at, "pax records"));
    const std::size_t space = rest.find(' '), equals = rest.find('=');
    const auto length = static_cast<std::size_t>(whole_number(rest.substr(0, space), 10).value_or(0));
    const auto bad = [&] {
      file_.fail(at, "a pax record must be LENGTH KEY=VALUE and a newline, but is not");
    };
    if (length > rest.size() || space >= equals || equals >= length || rest[length - 1] != '\n') bad();
    const std::string_view key = rest.substr(space + 1, equals - space - 1);
    const std::string_view value = rest.substr(equals + 1, length - equals - 2);
    if (key == "path") {
      if (std::ssize(value) > kMaxNameBytes) bad();
      long_name_ = value.substr(0, value.find('\0'));
    } else if (key == "size") {
      pax_size_ = whole_number(value, 10);
      if (!pax_size_) bad();
    } else if (key.starts_with("GNU.sparse.")) {
      fail_sparse(at);
    }
    at += static_cast<std::int64_t>(length);
  }
}

void TarReader::fail_sparse(std::int64_t at) const {
  file_.fail(at, "members must not be sparse, but one is; write the archive without --sparse");
}

}  // namespace athanor::detail
