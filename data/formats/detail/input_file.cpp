#include "data/formats/detail/input_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <zlib.h>

#include "tensor/error.h"

namespace athanor {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 24;

gzFile handle(void* file) {
  return static_cast<gzFile>(file);
}

}  // namespace

InputFile::InputFile(std::filesystem::path path, std::string format, std::string advice)
    : path_(std::move(path)), format_(std::move(format)), advice_(std::move(advice)) {
  std::error_code error;
  if (std::filesystem::is_directory(path_, error)) fail(0, "must be a file, but is a folder");
  errno = 0;
  file_ = gzopen(path_.c_str(), "rb");
  if (!file_) fail(0, fmt::format("must be readable, but got: {}", std::strerror(errno)));
  gzbuffer(handle(file_), 1 << 18);
}

InputFile::~InputFile() {
  if (file_) gzclose(handle(file_));
}

std::int64_t InputFile::read_some(std::uint8_t* to, std::int64_t count) {
  const int got = gzread(handle(file_), to, static_cast<unsigned>(std::min(count, kChunk)));
  int code = Z_OK;
  const char* message = gzerror(handle(file_), &code);
  // A gzip stream cut short gives its last bytes first, and then this code.
  if (got < 0 || (got == 0 && code == Z_BUF_ERROR)) {
    fail(offset_, code == Z_BUF_ERROR ? "the gzip stream must be whole, but is cut short"
                                      : fmt::format("must be readable, but got: {}",
                                                    code == Z_ERRNO ? std::strerror(errno) : message));
  }
  offset_ += got;
  return got;
}

void InputFile::read(std::span<std::uint8_t> bytes, std::string_view what) {
  const auto want = std::ssize(bytes);
  std::int64_t done = 0;
  while (done < want) {
    const std::int64_t got = read_some(bytes.data() + done, want - done);
    if (got == 0) {
      fail(offset_, fmt::format("{} must have {} bytes, but the file ends after {}", what, want, done));
    }
    done += got;
  }
}

std::vector<std::uint8_t> InputFile::read_vector(std::int64_t count, std::string_view what) {
  std::vector<std::uint8_t> bytes;
  std::int64_t done = 0;
  while (done < count) {
    // Doubling, not `count` at once: what a header says is not yet to be trusted.
    const std::int64_t step = std::min(count - done, std::max(kChunk, done));
    bytes.resize(static_cast<std::size_t>(done + step));
    for (const std::int64_t end = done + step; done < end;) {
      const std::int64_t got = read_some(bytes.data() + done, end - done);
      if (got == 0) {
        fail(offset_, fmt::format("{} must have {} bytes, but the file ends after {}", what, count, done));
      }
      done += got;
    }
  }
  return bytes;
}

std::vector<std::uint8_t> InputFile::read_rest() {
  std::vector<std::uint8_t> bytes;
  for (std::size_t used = 0;;) {
    bytes.resize(used + static_cast<std::size_t>(std::max<std::int64_t>(1 << 16, std::ssize(bytes))));
    const std::int64_t got =
        read_some(bytes.data() + used, std::ssize(bytes) - static_cast<std::int64_t>(used));
    used += static_cast<std::size_t>(got);
    bytes.resize(used);
    if (got == 0) return bytes;
  }
}

std::uint32_t InputFile::read_u32(std::string_view what) {
  std::array<std::uint8_t, 4> b;
  read(b, what);
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
}

void InputFile::expect_end() {
  std::uint8_t extra;
  const std::int64_t at = offset_;
  if (read_some(&extra, 1) != 0) fail(at, "the file must end here, but goes on");
}

void InputFile::fail(std::int64_t offset, const std::string& message) const {
  detail::fail<IoError>("{}: {}, offset {}: {}; {}", format_, path_.string(), offset, message, advice_);
}

std::filesystem::path find_plain_or_gz(const std::filesystem::path& folder, const std::string& name,
                                       const std::string& format, const std::string& advice) {
  std::error_code error;
  for (const char* suffix : {"", ".gz"}) {
    std::filesystem::path path = folder / (name + suffix);
    if (std::filesystem::exists(path, error)) return path;
  }
  detail::fail<IoError>("{}: {} (or {}.gz) must exist, but there is no such file; {}", format,
                        (folder / name).string(), name, advice);
}

std::string gunzip(std::span<const unsigned char> bytes, std::string_view what) {
  z_stream stream{};
  const auto check = [&](bool good) {
    if (good) return;
    const std::string reason = stream.msg ? stream.msg : "its end is missing";
    inflateEnd(&stream);
    detail::fail<IoError>("{}: must be a whole gzip file, but at offset {}: {}", what, stream.total_in,
                          reason);
  };
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) detail::fail<IoError>("{}: zlib cannot start", what);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string text;
  int code = Z_OK;
  while (code != Z_STREAM_END) {
    std::array<char, 1 << 16> buffer;
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = buffer.size();
    code = inflate(&stream, Z_NO_FLUSH);
    check(code == Z_OK || code == Z_STREAM_END);
    text.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  return text;
}

}  // namespace athanor
