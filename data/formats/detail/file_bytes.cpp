#include "data/formats/detail/file_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"
#include "tensor/regular_file.h"

namespace athanor::detail {
namespace {

/// What a gzip file holds, piece by piece.
class Inflater {
 public:
  explicit Inflater(const FileBytes& file) : file_(file) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) file.fail(0, "zlib cannot start");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Fills `to`; returns how much there was.
  std::size_t read(std::span<std::uint8_t> to) {
    stream_.next_out = to.data();
    stream_.avail_out = static_cast<uInt>(to.size());
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0) feed();
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        next_member();
      } else if (code != Z_OK) {
        fail(code == Z_BUF_ERROR ? "but is cut short" : stream_.msg ? stream_.msg : "but is damaged");
      }
    }
    return to.size() - stream_.avail_out;
  }

 private:
  void feed() {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    const std::span<const std::byte> piece = file_.bytes().subspan(fed_);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(std::min(piece.size(), kMost));
    fed_ += stream_.avail_in;
  }
  /// Several files that were put one behind the other are one file.
  void next_member() {
    if (stream_.avail_in == 0) feed();
    ended_ = stream_.avail_in < 2 || stream_.next_in[0] != 0x1f || stream_.next_in[1] != 0x8b;
    before_ += static_cast<std::int64_t>(stream_.total_out);
    if (!ended_) inflateReset(&stream_);
  }
  [[noreturn]] void fail(const char* why) const {
    file_.fail(before_ + static_cast<std::int64_t>(stream_.total_out),
               fmt::format("the gzip stream must be whole, {}", why));
  }

  const FileBytes& file_;
  z_stream stream_{};
  std::size_t fed_ = 0;
  std::int64_t before_ = 0;  // bytes of the members that have ended
  bool ended_ = false;
};

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path, std::string format, std::string advice)
    : name_(path.string()), format_(std::move(format)), advice_(std::move(advice)) {
  const RegularFile file(path);
  if (!file.problem().empty()) fail(0, file.problem());
  const auto size = static_cast<std::size_t>(file.bytes());
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) fail(0, fmt::format("cannot be mapped: {}", std::strerror(errno)));
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
  if (offset < 0 || count < 0 || offset > size() || count > size() - offset) {
    const bool outside = offset < 0 || offset > size();
    fail(outside ? size() : offset,
         outside ? fmt::format("{} must lie within the file of {} bytes, but its offset is {}", what, size(),
                               offset)
                 : fmt::format("{} must have {} bytes, but the file ends after {}", what, count,
                               size() - offset));
  }
  return bytes_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
}

bool FileBytes::is_gzip() const {
  return bytes_.size() >= 2 && bytes_[0] == std::byte{0x1f} && bytes_[1] == std::byte{0x8b};
}

std::int64_t FileBytes::stated_size() const {
  if (!is_gzip()) return size();
  return load_le<std::uint32_t>(at(std::max<std::int64_t>(size() - 4, 2), 4, "the gzip stream's size"));
}

/// Memory grows with what comes out, and pages beyond it are not touched.
std::vector<std::uint8_t> FileBytes::inflated(std::int64_t most) const {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
  const auto wanted = static_cast<std::size_t>(most);
  std::vector<std::uint8_t> content;
  content.reserve(wanted);
  Inflater inflater(*this);
  for (std::size_t done = 0; done < wanted;) {
    content.resize(std::min(wanted, done + kPiece));
    const std::size_t got = inflater.read(std::span(content).subspan(done));
    done += got;
    content.resize(done);
    if (got == 0) break;
  }
  return content;
}

FileBytes FileBytes::head(std::int64_t most) const {
  std::vector<std::uint8_t> content;
  if (is_gzip()) {
    content = inflated(most);
  } else {
    const std::span<const std::byte> first = bytes_.first(static_cast<std::size_t>(std::min(most, size())));
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(first.data());
    content.assign(bytes, bytes + first.size());
  }
  return FileBytes(name_, std::move(content), format_, advice_);
}

void FileBytes::expand(std::int64_t count) {
  if (!is_gzip()) return;
  if (count / kMostExpansion > size()) {
    fail(0, fmt::format("must hold {} bytes, but a gzip file of {} bytes cannot", count, size()));
  }
  std::vector<std::uint8_t> content = inflated(count + 1);  // a byte more would be one too many
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

std::string FileBytes::where(std::int64_t offset) const {
  return fmt::format("{}, offset {}", name_, offset);
}

void FileBytes::fail(std::int64_t offset, const std::string& message) const {
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
