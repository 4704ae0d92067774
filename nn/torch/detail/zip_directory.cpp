#include "nn/torch/detail/zip_directory.h"

#include <algorithm>

#include <isa-l/crc.h>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::zip {
namespace {

constexpr std::uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kEntry = 0x02014b50,
                        kLocal = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46,
                        kLocalBytes = 30, kMaxComment = 65535;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in a ZIP64 record

/// Little-endian numbers of a file. Every read is checked.
class Bytes {
 public:
  Bytes(std::span<const std::byte> file, const std::string& who) : file_(file), who_(who) {}

  std::uint64_t size() const { return file_.size(); }
  template <class... Args>
  [[noreturn]] void fail(std::uint64_t at, fmt::format_string<Args...> format, Args&&... args) const {
    athanor::detail::fail<IoError>("{}: at byte {}: {}", who_, at,
                                   printable(fmt::format(format, std::forward<Args>(args)...)));
  }
  void check(std::uint64_t at, std::uint64_t bytes, const char* what) const {
    if (at > size() || bytes > size() - at)
      fail(std::min(at, size()), "{} must lie within the file's {} bytes, but has {}", what, size(), bytes);
  }
  std::uint64_t number(std::uint64_t at, int bytes) const {
    check(at, static_cast<std::uint64_t>(bytes), "a field of the zip file");
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
      value |= std::to_integer<std::uint64_t>(file_[at + static_cast<std::uint64_t>(i)]) << 8 * i;
    return value;
  }
  std::string_view text(std::uint64_t at, std::uint64_t bytes) const {
    check(at, bytes, "a member's name");
    return {reinterpret_cast<const char*>(file_.data()) + at, static_cast<std::size_t>(bytes)};
  }

 private:
  std::span<const std::byte> file_;
  const std::string& who_;
};

struct Directory {
  std::uint64_t begin = 0, bytes = 0, entries = 0;
};

Directory find_directory(const Bytes& file) {
  if (file.size() < kEndBytes) file.fail(0, "must be a complete zip file, but has {} bytes", file.size());
  const std::uint64_t last = file.size() - kEndBytes, first = last > kMaxComment ? last - kMaxComment : 0;
  std::uint64_t end = last;
  while (file.number(end, 4) != kEnd || file.number(end + 20, 2) != last - end) {
    if (end-- == first) file.fail(file.size(), "expected the end of a zip file: it is cut off");
  }
  Directory directory{file.number(end + 16, 4), file.number(end + 12, 4), file.number(end + 10, 2)};
  if (end >= kLocatorBytes && file.number(end - kLocatorBytes, 4) == kLocator64) {
    const std::uint64_t at = file.number(end - kLocatorBytes + 8, 8);
    file.check(at, kEnd64Bytes, "the end of a zip file");
    if (file.number(at, 4) != kEnd64) file.fail(at, "expected the end of a ZIP64 file");
    directory = {file.number(at + 48, 8), file.number(at + 40, 8), file.number(at + 32, 8)};
  }
  file.check(directory.begin, directory.bytes, "the zip file's directory");
  if (directory.entries > directory.bytes / kEntryBytes)
    file.fail(directory.begin, "a directory of {} bytes cannot have {} entries", directory.bytes,
              directory.entries);
  return directory;
}

/// Sizes and offsets that exceed 32 bits are in an extra field, only those, in this order.
void read_extra64(const Bytes& file, std::uint64_t at, std::uint64_t bytes, std::uint64_t& size,
                  std::uint64_t& stored, std::uint64_t& local) {
  const std::uint64_t end = at + bytes;
  while (at + 4 <= end) {
    const std::uint64_t id = file.number(at, 2), length = file.number(at + 2, 2);
    at += 4;
    if (id == 1) {
      const std::uint64_t field_end = std::min(end, at + length);
      for (std::uint64_t* value : {&size, &stored, &local}) {
        if (*value != kIn64) continue;
        if (at + 8 > field_end) file.fail(at, "expected a size of 64 bits");
        *value = file.number(at, 8);
        at += 8;
      }
      return;
    }
    at += length;
  }
}

}  // namespace

bool is_zip(std::span<const std::byte> file) {
  constexpr std::byte kFirst[] = {std::byte{'P'}, std::byte{'K'}, std::byte{3}, std::byte{4}};
  return file.size() >= 4 && std::equal(kFirst, kFirst + 4, file.begin());
}

std::map<std::string, Member, std::less<>> directory(std::span<const std::byte> bytes,
                                                     const std::string& who) {
  const Bytes file(bytes, who);
  const Directory found = find_directory(file);
  std::map<std::string, Member, std::less<>> members;
  std::uint64_t at = found.begin;
  for (std::uint64_t i = 0; i < found.entries; ++i) {
    file.check(at, kEntryBytes, "an entry of the zip file's directory");
    if (file.number(at, 4) != kEntry) file.fail(at, "expected an entry of the zip file's directory");
    const std::uint64_t flags = file.number(at + 8, 2), method = file.number(at + 10, 2);
    std::uint64_t stored = file.number(at + 20, 4), size = file.number(at + 24, 4);
    const std::uint64_t name = file.number(at + 28, 2), extra = file.number(at + 30, 2);
    std::uint64_t local = file.number(at + 42, 4);
    const std::string member(file.text(at + kEntryBytes, name));
    file.check(at + kEntryBytes + name, extra, "an extra field");
    read_extra64(file, at + kEntryBytes + name, extra, size, stored, local);
    if (method != 0 || (flags & 1) != 0 || stored != size)
      file.fail(at,
                "members must be stored as they are, but '{}' is compressed or encrypted; "
                "torch.save() does neither",
                member.substr(0, 80));
    file.check(local, kLocalBytes, "a member's header");
    if (file.number(local, 4) != kLocal)
      file.fail(local, "expected the header of '{}'", member.substr(0, 80));
    const std::uint64_t begin = local + kLocalBytes + file.number(local + 26, 2) + file.number(local + 28, 2);
    file.check(begin, size, "a member");
    const auto crc = static_cast<std::uint32_t>(file.number(at + 16, 4));
    if (!members.emplace(member, Member{begin, size, crc}).second)
      file.fail(at, "member names must be unique, but two are '{}'", member.substr(0, 80));
    at += kEntryBytes + name + extra + file.number(at + 32, 2);
  }
  return members;
}

std::span<const std::byte> content(std::span<const std::byte> file, const Member& member,
                                   const std::string& who) {
  const auto bytes = file.subspan(member.begin, member.bytes);
  const std::uint32_t crc =
      crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  if (crc != member.crc32)
    athanor::detail::fail<IoError>(
        "{}: at byte {}: the {} bytes here are damaged: their CRC-32 is {:08x}, but was {:08x} when written",
        who, member.begin, member.bytes, crc, member.crc32);
  return bytes;
}

}  // namespace athanor::zip
