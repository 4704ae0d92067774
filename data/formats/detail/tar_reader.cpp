#include "data/formats/detail/tar_reader.h"

#include <algorithm>

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"

namespace athanor::detail {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr std::int64_t kMaxNameBytes = 1 << 16;
// Fields of a header: where they begin, and their lengths.
constexpr std::int64_t kName = 0, kNameLength = 100, kSize = 124, kSizeLength = 12, kSum = 148,
                       kSumLength = 8;
constexpr std::int64_t kType = 156, kMagic = 257, kPrefix = 345, kPrefixLength = 155;

/// Text up to the first zero byte.
std::string_view text_field(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  return text.substr(0, text.find('\0'));
}

bool is_zero(std::span<const std::byte> block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

bool TarReader::next() {
  long_name_.clear();
  pax_size_ = -1;
  for (;;) {
    const std::int64_t header = at_;
    const std::span<const std::byte> block =
        file_.at(header, kBlock, "a member's header, or the zeros at the end,");
    if (is_zero(block)) return false;
    check_sum(header);
    const auto type = std::to_integer<char>(block[kType]);
    size_ = number(header, kSize, kSizeLength, "a member's size");
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (is_file && pax_size_ >= 0) size_ = pax_size_;
    const bool has_content = type < '1' || type > '6';
    if (!has_content) size_ = 0;  // links, devices and folders
    offset_ = header + kBlock;
    file_.at(offset_, size_, "a member");
    // Its end padded to a block; that of the last need not be there, but then no zeros follow, which is
    // found.
    at_ = offset_ + size_ + (kBlock - size_ % kBlock) % kBlock;
    switch (type) {
      case 'L':
        if (size_ > kMaxNameBytes) {
          file_.fail(header,
                     fmt::format("a name must have at most {} bytes, but has {}", kMaxNameBytes, size_));
        }
        long_name_ = text_field(file_.at(offset_, size_, "a long name"));
        continue;
      case 'x': read_pax(); continue;
      case 'S':
        file_.fail(header, "members must not be sparse, but one is; write the archive without --sparse");
      default: break;
    }
    if (is_file) {
      name_ = long_name_;
      if (name_.empty()) {
        const bool ustar = text_of(block.subspan(kMagic, 6)) == std::string_view("ustar\0", 6);
        if (ustar) name_ = text_field(block.subspan(kPrefix, kPrefixLength));
        if (!name_.empty()) name_ += '/';
        name_ += text_field(block.subspan(kName, kNameLength));
      }
      // A trailing slash was how archives before ustar said that it is a folder.
      if (!name_.ends_with('/')) return true;
    }
    // What 'L' and 'x' said is of the next member only; a global header and a link's long name are none.
    if (type != 'g' && type != 'K') {
      long_name_.clear();
      pax_size_ = -1;
    }
  }
}

/// The sum of the header's bytes, those of the sum itself taken as spaces.
void TarReader::check_sum(std::int64_t header) const {
  const std::span<const std::byte> block = file_.at(header, kBlock, "a header");
  std::int64_t sum = 0, as_signed = 0;  // some old programs added them up as signed numbers
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const bool in_sum = i >= kSum && i < kSum + kSumLength;
    const auto byte = in_sum ? ' ' : std::to_integer<int>(block[static_cast<std::size_t>(i)]);
    sum += byte;
    as_signed += static_cast<signed char>(byte);
  }
  const std::int64_t stated = number(header, kSum, kSumLength, "a header's checksum");
  if (stated != sum && stated != as_signed) {
    file_.fail(
        header,
        fmt::format("a header's checksum must be {}, but is {}: this is no tar archive, or a damaged one",
                    sum, stated));
  }
}

std::int64_t TarReader::number(std::int64_t header, std::int64_t at, std::int64_t length,
                               const char* what) const {
  const std::span<const std::byte> field = file_.at(header + at, length, what);
  std::int64_t value = 0;
  if (std::to_integer<int>(field[0]) == 0x80) {  // GNU: big-endian, where octal digits do not suffice
    for (const std::byte byte : field.subspan(1)) {
      if (__builtin_mul_overflow(value, 256, &value)) value = -1;
      if (value < 0) break;
      value += std::to_integer<int>(byte);
    }
    if (value < 0) file_.fail(header + at, fmt::format("{} must be below 2^63, but is not", what));
    return value;
  }
  std::string_view text = text_field(field);
  text = text.substr(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  for (const char c : text) {
    if (c < '0' || c > '7') file_.fail(header + at, fmt::format("{} must be octal digits, but is not", what));
    value = value * 8 + (c - '0');  // twelve digits at most
  }
  return value;
}

/// Records "LENGTH KEY=VALUE\n"; of those `path` and `size` count here.
void TarReader::read_pax() {
  std::int64_t at = offset_;
  const std::int64_t end = offset_ + size_;
  while (at < end) {
    const auto bad = [&] {
      file_.fail(at, "a pax record must be LENGTH KEY=VALUE and a line's end, but is not");
    };
    const std::string_view rest = text_of(file_.at(at, end - at, "pax records"));
    std::int64_t length = 0;
    std::size_t digits = 0;
    for (; digits < rest.size() && digits < 10 && rest[digits] >= '0' && rest[digits] <= '9'; ++digits) {
      length = length * 10 + (rest[digits] - '0');
    }
    if (digits == 0 || length > end - at || length < static_cast<std::int64_t>(digits) + 3) bad();
    const std::string_view record = rest.substr(0, static_cast<std::size_t>(length));
    const std::size_t equals = record.find('=');
    if (record[digits] != ' ' || record.back() != '\n' || equals == std::string_view::npos) bad();
    const std::string_view key = record.substr(digits + 1, equals - digits - 1);
    const std::string_view value = record.substr(equals + 1, record.size() - equals - 2);
    if (key == "path") {
      if (std::ssize(value) > kMaxNameBytes) bad();
      long_name_ = value.substr(0, value.find('\0'));
    } else if (key == "size") {
      pax_size_ = 0;
      for (const char c : value) {
        if (c < '0' || c > '9' || __builtin_mul_overflow(pax_size_, 10, &pax_size_) ||
            __builtin_add_overflow(pax_size_, c - '0', &pax_size_)) {
          bad();
        }
      }
    } else if (key.starts_with("GNU.sparse.")) {
      file_.fail(at, "members must not be sparse, but one is; write the archive without --sparse");
    }
    at += length;
  }
}

}  // namespace athanor::detail
