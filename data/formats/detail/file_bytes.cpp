#include "data/formats/detail/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <zlib.h>

#include "data/formats/detail/bytes.h"
#include "tensor/base/error.h"
#include "tensor/io/file_kind.h"

namespace athanor::detail {
FileBytes::FileBytes(const std::filesystem::path& path, std::string format, std::string advice)
    : name_(path.string()),
      format_(std::move(format)),
      advice_(std::move(advice)),
      file_(std::in_place, path) {
  const std::shared_ptr<const RegularFile> file = open(0);
  size_ = file->bytes();
  modified_ns_ = file->modified_ns();
}

FileBytes::FileBytes(std::string name, std::vector<std::uint8_t> content, std::string format,
                     std::string advice)
    : name_(std::move(name)), format_(std::move(format)), advice_(std::move(advice)) {
  hold(std::move(content));
}

void FileBytes::hold(std::vector<std::uint8_t> content) {
  file_.reset();
  memory_ = std::move(content);
  size_ = std::ssize(memory_);
}

void FileBytes::must_have(std::int64_t offset, std::int64_t count, std::string_view what) const {
  if (offset < 0 || offset > size()) {
    fail(size(), "{} must lie within the file of {} bytes, but its offset is {}", what, size(), offset);
  }
  if (count < 0 || count > size() - offset) {
    fail(offset, "{} must have {} bytes, but the file ends after {}", what, count, size() - offset);
  }
}

void FileBytes::must_end_at(std::int64_t offset) const {
  if (size() > offset) fail(offset, "the file must end here, but more bytes follow");
}

std::span<const std::byte> FileBytes::at(std::int64_t offset, std::int64_t count, std::string_view what,
                                         std::vector<std::byte>& scratch) const {
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  must_have(offset, count, what);
  const auto bytes = static_cast<std::size_t>(count);
  if (!file_) return std::as_bytes(std::span(memory_)).subspan(static_cast<std::size_t>(offset), bytes);
  if (count > kMax) fail(offset, "{} must have at most 1 GiB, but has {} bytes", what, count);
  if (scratch.size() < bytes) scratch.resize(bytes);
  const auto to = std::span(scratch).first(bytes);
  read(offset, to, what);
  return to;
}

std::shared_ptr<const RegularFile> FileBytes::open(std::int64_t offset) const {
  std::string problem;
  std::shared_ptr<const RegularFile> file = file_->open(problem);
  if (!file) fail_with(offset, problem);
  return file;
}

void FileBytes::read(std::int64_t offset, std::span<std::byte> to, std::string_view what) const {
  const std::shared_ptr<const RegularFile> file = open(offset);
  const auto got = static_cast<std::int64_t>(file->read_at(static_cast<std::uint64_t>(offset), to));
  if (got == std::ssize(to)) return;
  if (errno != 0) fail(offset + got, "{} cannot be read: {}", what, std::strerror(errno));
  fail(offset + got, "must keep its {} bytes, but was truncated to {} while open", size(), file->bytes_now());
}

std::vector<std::byte> FileBytes::all() const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size()));
  if (file_) {
    read(0, bytes, "the file");
  } else {
    std::ranges::copy(std::as_bytes(std::span(memory_)), bytes.begin());
  }
  return bytes;
}

bool FileBytes::has(std::string_view magic, std::int64_t offset) const {
  const std::int64_t count = std::ssize(magic);
  if (offset > size() - count) return false;
  std::vector<std::byte> scratch;
  return text_of(at(offset, count, "a magic number", scratch)) == magic;
}

void FileBytes::must_not_be_compressed() const {
  constexpr std::pair<std::string_view, const char*> kPrograms[] = {
      {"gzip", "gunzip"}, {"bzip2", "bunzip2"}, {"xz", "unxz"}, {"zstd", "unzstd"}};
  std::vector<std::byte> scratch;
  const std::string kind =
      file_kind(text_of(at(0, std::min<std::int64_t>(size(), 512), "the first bytes", scratch)));
  for (const auto& [name, program] : kPrograms)
    if (kind == name)
      fail(0, "must not be compressed, because samples are read in any order: {} it first", program);
}

bool FileBytes::is_gzip() const {
  return has(kGzip);
}

std::int64_t FileBytes::stated_size() const {
  if (!is_gzip()) return size();
  std::vector<std::byte> scratch;
  return load_le<std::uint32_t>(
      at(std::max<std::int64_t>(size() - 4, 2), 4, "the gzip stream's size", scratch));
}

/// The beginning of a gzip file's content. Memory grows with the output.
std::vector<std::uint8_t> FileBytes::inflated(std::int64_t most) const {
  constexpr std::int64_t kInput = 1 << 20;
  constexpr std::size_t kOutput = std::size_t{1} << 24;
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) fail(0, "zlib failed to initialize");
  const std::unique_ptr<z_stream, int (*)(z_streamp)> ended(&stream, &inflateEnd);
  const auto wanted = static_cast<std::size_t>(most);
  std::vector<std::uint8_t> content;
  content.reserve(wanted);
  std::vector<std::byte> scratch;
  std::int64_t fed = 0;
  std::size_t done = 0;
  for (int code = Z_OK; code == Z_OK && done < wanted;) {
    if (stream.avail_in == 0) {
      const auto piece = at(fed, std::min(size() - fed, kInput), "the gzip stream", scratch);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
      stream.avail_in = static_cast<uInt>(piece.size());
      fed += std::ssize(piece);
    }
    content.resize(std::min(wanted, done + kOutput));
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
    if (code == Z_STREAM_END && has(kGzip, fed - stream.avail_in)) code = inflateReset(&stream);
  }
  content.resize(done);
  return content;
}

FileBytes FileBytes::head(std::int64_t most) const {
  if (is_gzip()) return FileBytes(name_, inflated(most), format_, advice_);
  std::vector<std::byte> scratch;
  const auto first = at(0, std::min(most, size()), "the header", scratch);
  const auto* from = reinterpret_cast<const std::uint8_t*>(first.data());
  return FileBytes(name_, {from, from + first.size()}, format_, advice_);
}

void FileBytes::expand(std::int64_t count) {
  if (!is_gzip()) return;
  if (count / kMaxExpansion > size()) {
    fail(0, "must hold {} bytes, but a gzip file of {} bytes cannot expand to that", count, size());
  }
  hold(inflated(count + 1));  // one extra byte would be an error
}

// Only a hint: failures do no harm.
void FileBytes::will_need(std::int64_t offset, std::int64_t count) const {
  if (!file_ || offset < 0 || count <= 0 || offset >= size()) return;
  std::string ignored;
  if (const std::shared_ptr<const RegularFile> file = file_->open(ignored))
    ::posix_fadvise(file->descriptor(), offset, std::min(count, size() - offset), POSIX_FADV_WILLNEED);
}

void FileBytes::fail_with(std::int64_t offset, const std::string& message) const {
  detail::fail<IoError>("{}: {}, offset {}: {}; {}", format_, name_, offset, message, advice_);
}

std::span<const std::byte> FilePages::at(std::int64_t offset, std::int64_t count, std::string_view what) {
  constexpr std::int64_t kPage = 4096;
  file_.must_have(offset, count, what);
  const std::int64_t end = offset + count;
  if (offset < first_ || end > first_ + std::ssize(page_)) {
    page_ = {};
    first_ = offset / kPage * kPage;
    page_ = file_.at(first_, std::min(std::max(end, first_ + kPage), file_.size()) - first_, what, scratch_);
  }
  return page_.subspan(static_cast<std::size_t>(offset - first_), static_cast<std::size_t>(count));
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
