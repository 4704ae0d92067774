#include "data/formats/detail/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "data/formats/detail/bytes.h"
#include "tensor/base/printable.h"

namespace athanor::detail {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr std::int64_t kMaxNameBytes = 1 << 16, kMaxPaxBytes = 1 << 24;
// Header fields: offsets and lengths.
constexpr std::int64_t kName = 0, kNameLength = 100, kSize = 124, kSizeLength = 12, kSum = 148,
                       kSumLength = 8;
constexpr std::int64_t kType = 156, kLink = 157, kLinkLength = 100, kUstarMagic = 257, kPrefix = 345,
                       kPrefixLength = 155;

/// Text up to the first zero byte.
std::string_view text_field(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  return text.substr(0, text.find('\0'));
}

bool is_zero(std::span<const std::byte> block) {
  return text_of(block).find_first_not_of('\0') == std::string_view::npos;
}

/// All of `text` as a number >= 0; nullopt if invalid or out of range.
std::optional<std::int64_t> whole_number(std::string_view text, int base) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && value >= 0;
  return whole && text.front() != '-' ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string pax_record(const std::string& key, const std::string& value) {
  std::size_t length = key.size() + value.size() + 4;  // with one digit, a space, '=' and a newline
  while (fmt::format("{}", length).size() + key.size() + value.size() + 3 > length) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

std::string TarReader::of_member() const {
  if (!name_.empty()) return fmt::format(" (member {})", printable(name_));
  return last_name_.empty() ? "" : fmt::format(" (after {})", printable(last_name_));
}

void TarReader::must_have(std::int64_t offset, std::int64_t count, const char* what) const {
  const bool fits = offset <= file_.size() && count <= file_.size() - offset;
  file_.must_have(offset, count, fits ? what : what + of_member());
}

std::span<const std::byte> TarReader::at(std::int64_t offset, std::int64_t count, const char* what) {
  must_have(offset, count, what);
  return pages_.at(offset, count, what);
}

bool TarReader::next() {
  long_name_.clear();
  long_link_.clear();
  pax_size_.reset();
  for (;;) {
    const std::int64_t header = at_;
    if (!name_.empty()) last_name_.swap(name_);
    name_.clear();
    const std::span<const std::byte> block =
        at(header, kBlock, "a member's header, or the zeros at the end,");
    if (is_zero(block)) {
      if (at_end()) return false;
      continue;
    }
    check_sum(header);
    name_ = long_name_;
    if (name_.empty()) {
      const bool ustar = text_of(block.subspan(kUstarMagic, 6)) == std::string_view("ustar\0", 6);
      if (ustar) name_ = text_field(block.subspan(kPrefix, kPrefixLength));
      if (!name_.empty()) name_ += '/';
      name_ += text_field(block.subspan(kName, kNameLength));
    }
    const auto type = std::to_integer<char>(block[kType]);
    size_ = number(header + kSize, kSizeLength, "a member's size");
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (is_file) size_ = pax_size_.value_or(size_);
    if (type >= '1' && type <= '6') size_ = 0;  // links, devices and folders
    offset_ = header + kBlock;
    must_have(offset_, size_, "the content");
    // Its end padded to a block. The last padding may be missing: missing final zeros are detected.
    at_ = offset_ + size_ + (kBlock - size_ % kBlock) % kBlock;
    if (type == 'S') fail_sparse(header);
    if (type == 'L' || type == 'K') {
      if (size_ > kMaxNameBytes)
        fail(header, "a name must have at most {} bytes, but has {}", kMaxNameBytes, size_);
      (type == 'L' ? long_name_ : long_link_) = text_field(at(offset_, size_, "a long name"));
      name_.clear();
      continue;
    }
    if (type == 'x' || type == 'g') {
      read_pax(type == 'g');
      name_.clear();
      continue;
    }
    // Before ustar, a trailing slash marked a folder.
    if (is_file && !name_.ends_with('/')) return true;
    if (type == '1' && follows_links_) {
      follow(long_link_.empty() ? std::string(text_field(block.subspan(kLink, kLinkLength))) : long_link_);
      return true;
    }
    const bool is_folder = is_file || type == '5' || type == 'D';  // the latter lists names, as GNU tar does
    if (!is_folder) count_unused(unused_, "links, devices and other entries", name_);
    // 'L', 'K' and 'x' apply only to the next member.
    long_name_.clear();
    long_link_.clear();
    pax_size_.reset();
  }
}

/// At zeros: whether the archive ends here, and no other was appended. Else goes to its first header.
bool TarReader::at_end() {
  std::int64_t at = at_;
  while (at + kBlock <= file_.size() && is_zero(pages_.at(at, kBlock, "zeros"))) at += kBlock;
  if (at >= file_.size()) return true;
  if (at + kBlock <= file_.size() && file_.has("ustar", at + kUstarMagic)) {
    at_ = at;
    return false;
  }
  count_unused(unused_, "parts behind the end of the archive", file_.where(at));
  return true;
}

/// The member is a hard link: its content is that of the file `link`, or of the file that this one leads to.
void TarReader::follow(const std::string& link) {
  const auto plain = [](const std::string& name) { return name.substr(name.starts_with("./") ? 2 : 0); };
  if (contents_.empty()) {
    for (TarReader files(file_); files.next_file();)
      contents_.try_emplace(plain(files.name()), files.offset(), files.size());
  }
  const auto at = contents_.find(plain(link));
  if (at == contents_.end())
    fail(offset_ - kBlock, "the hard link {} must lead to a file of the archive, but leads to {}",
         printable(name_), printable(link));
  std::tie(offset_, size_) = at->second;
  contents_.try_emplace(plain(name_), offset_, size_);
}

/// Checks the sum of the header's bytes, with the checksum field counted as spaces.
void TarReader::check_sum(std::int64_t header) {
  std::string block(text_of(at(header, kBlock, "a header")));
  block.replace(kSum, kSumLength, kSumLength, ' ');
  std::int64_t sum = 0, as_signed = 0;  // some old programs summed signed bytes
  for (const char c : block) {
    sum += static_cast<unsigned char>(c);
    as_signed += static_cast<signed char>(c);
  }
  const std::int64_t stated = number(header + kSum, kSumLength, "a header's checksum");
  if (stated != sum && stated != as_signed) {
    fail(header, "a header's checksum must be {}, but is {}: this is not a tar archive, or a damaged one",
         sum, stated);
  }
}

std::int64_t TarReader::number(std::int64_t at, std::int64_t length, const char* what) {
  const std::span<const std::byte> field = pages_.at(at, length, what);
  if (std::to_integer<int>(field[0]) == 0x80) {  // GNU: big-endian, for sizes beyond the octal digits
    std::int64_t value = 0;
    for (const std::byte byte : field.subspan(1)) {
      if (__builtin_mul_overflow(value, 256, &value)) fail(at, "{} must be below 2^63, but is not", what);
      value += std::to_integer<int>(byte);
    }
    return value;
  }
  std::string_view text = text_field(field);
  text = text.substr(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  const std::optional<std::int64_t> value = text.empty() ? 0 : whole_number(text, 8);
  if (!value) fail(at, "{} must be octal digits, but is not", what);
  return *value;
}

/// Records "LENGTH KEY=VALUE\n"; uses `path` and `size` of a member, and our comments of a global header.
void TarReader::read_pax(bool global) {
  if (size_ > kMaxPaxBytes)
    fail(offset_, "pax records must have at most {} bytes, but have {}", kMaxPaxBytes, size_);
  const std::int64_t end = offset_ + size_;
  std::vector<std::string> names;
  for (std::int64_t at = offset_; at < end;) {
    const std::string_view rest = text_of(pages_.at(at, end - at, "pax records"));
    const std::size_t space = rest.find(' '), equals = rest.find('=');
    const auto length = static_cast<std::size_t>(whole_number(rest.substr(0, space), 10).value_or(0));
    const auto bad = [&] { fail(at, "a pax record must be LENGTH KEY=VALUE and a newline, but is not"); };
    if (length > rest.size() || space >= equals || equals >= length || rest[length - 1] != '\n') {
      if (global) break;  // nothing of it is needed
      bad();
    }
    const std::string_view key = rest.substr(space + 1, equals - space - 1);
    const std::string_view value = rest.substr(equals + 1, length - equals - 2);
    if (global) {
      if (key == "comment" && value.starts_with(kTarClass))
        names.push_back(percent_decoded(value.substr(std::size(kTarClass) - 1)));
    } else if (key == "path" || key == "linkpath") {
      if (std::ssize(value) > kMaxNameBytes) bad();
      (key == "path" ? long_name_ : long_link_) = value.substr(0, value.find('\0'));
    } else if (key == "size") {
      pax_size_ = whole_number(value, 10);
      if (!pax_size_) bad();
    } else if (key.starts_with("GNU.sparse.")) {
      fail_sparse(at);
    }
    at += static_cast<std::int64_t>(length);
  }
  if (names.empty()) return;
  if (!class_names_.empty() && names != class_names_)
    fail(offset_, "archives that are joined must have the same names of classes, but have others");
  class_names_ = std::move(names);
}

void TarReader::fail_sparse(std::int64_t at) const {
  fail(at, "members must not be sparse, but one is; write the archive without --sparse");
}

}  // namespace athanor::detail
