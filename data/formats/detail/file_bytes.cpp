#include "data/formats/detail/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"
#include "tensor/regular_file.h"

namespace athanor::detail {
namespace {

bool is_gzip(std::span<const std::byte> bytes) {
  return text_of(bytes).starts_with("\x1f\x8b");
}

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path, std::string format, std::string advice)
    : name_(path.string()), format_(std::move(format)), advice_(std::move(advice)) {
  const RegularFile file(path);
  if (!file.problem().empty()) fail_with(0, file.problem());
  const auto size = static_cast<std::size_t>(file.bytes());
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) fail(0, "cannot be mapped: {}", std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(address), size};
  mapped_ = true;
}

FileBytes::FileBytes(std::string name, std::vector<std::uint8_t> content, std::string format,
                     std::string advice)
    : name_(std::move(name)),
      format_(std::move(format)),
      advice_(std::move(advice)),
      memory_(std::move(content)) {
  bytes_ = std::as_bytes(std::span(memory_));
}

FileBytes::~FileBytes() {
  unmap();
}

void FileBytes::unmap() {
  if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  mapped_ = false;
}

std::span<const std::byte> FileBytes::at(std::int64_t offset, std::int64_t count,
                                         std::string_view what) const {
  if (offset < 0 || offset > size()) {
    fail(size(), "{} must lie within the file of {} bytes, but its offset is {}", what, size(), offset);
  }
  if (count < 0 || count > size() - offset) {
    fail(offset, "{} must have {} bytes, but the file ends after {}", what, count, size() - offset);
  }
  return bytes_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
}

void FileBytes::must_end_at(std::int64_t offset) const {
  if (size() > offset) fail(offset, "the file must end here, but more bytes follow");
}

std::int64_t FileBytes::stated_size() const {
  if (!is_gzip(bytes_)) return size();
  return load_le<std::uint32_t>(at(std::max<std::int64_t>(size() - 4, 2), 4, "the gzip stream's size"));
}

/// The beginning of a gzip file's content. Memory grows with the output; no page beyond is touched.
std::vector<std::uint8_t> FileBytes::inflated(std::int64_t most) const {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) fail(0, "zlib failed to initialize");
  const std::unique_ptr<z_stream, int (*)(z_streamp)> ended(&stream, &inflateEnd);
  const auto wanted = static_cast<std::size_t>(most);
  std::vector<std::uint8_t> content;
  content.reserve(wanted);
  std::size_t fed = 0, done = 0;
  for (int code = Z_OK; code == Z_OK && done < wanted;) {
    if (stream.avail_in == 0) {
      const std::span<const std::byte> piece = bytes_.subspan(fed, std::min(bytes_.size() - fed, kPiece));
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
      stream.avail_in = static_cast<uInt>(piece.size());
      fed += piece.size();
    }
    content.resize(std::min(wanted, done + kPiece));
    stream.next_out = content.data() + done;
    stream.avail_out = static_cast<uInt>(content.size() - done);
    code = inflate(&stream, Z_NO_FLUSH);
    done = content.size() - stream.avail_out;
    if (code != Z_OK && code != Z_STREAM_END) {
      fail(static_cast<std::int64_t>(done), "the gzip stream must be complete, {}",
           code == Z_BUF_ERROR ? "but is truncated"
           : stream.msg        ? stream.msg
                               : "but is damaged");
    }
    // Concatenated gzip files count as one.
    if (code == Z_STREAM_END && is_gzip(bytes_.subspan(fed - stream.avail_in))) code = inflateReset(&stream);
  }
  content.resize(done);
  return content;
}

FileBytes FileBytes::head(std::int64_t most) const {
  if (is_gzip(bytes_)) return FileBytes(name_, inflated(most), format_, advice_);
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes_.data());
  return FileBytes(name_, {first, first + std::min(most, size())}, format_, advice_);
}

void FileBytes::expand(std::int64_t count) {
  if (!is_gzip(bytes_)) return;
  if (count / kMaxExpansion > size()) {
    fail(0, "must hold {} bytes, but a gzip file of {} bytes cannot expand to that", count, size());
  }
  std::vector<std::uint8_t> content = inflated(count + 1);  // one extra byte would be an error
  unmap();
  memory_ = std::move(content);
  bytes_ = std::as_bytes(std::span(memory_));
}

void FileBytes::will_need(std::int64_t offset, std::int64_t count) const {
  if (!mapped_ || offset < 0 || count <= 0 || offset >= size()) return;
  static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t first = offset / page * page, end = offset + std::min(count, size() - offset);
  ::madvise(const_cast<std::byte*>(bytes_.data()) + first, static_cast<std::size_t>(end - first),
            MADV_WILLNEED);
}

void FileBytes::fail_with(std::int64_t offset, const std::string& message) const {
  detail::fail<IoError>("{}: {}, offset {}: {}; {}", format_, name_, offset, message, advice_);
}

std::filesystem::path find_plain_or_gz(const std::filesystem::path& folder, const std::string& name,
                                       const std::string& format, const std::string& advice) {
  std::error_code error;
  for (const char* suffix : {"", ".gz"}) {
    std::filesystem::path path = folder / (name + suffix);
    if (std::filesystem::exists(path, error)) return path;
  }
  fail<IoError>("{}: {} (or {}.gz) must exist, but there is no such file; {}", format,
                (folder / name).string(), name, advice);
}

}  // namespace athanor::detail
