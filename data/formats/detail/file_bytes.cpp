#include "data/formats/detail/file_bytes.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/formats/detail/input_file.h"
#include "tensor/error.h"

namespace athanor::detail {
namespace {

constexpr std::byte kGzipMagic[] = {std::byte{0x1f}, std::byte{0x8b}};

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == kGzipMagic[0] && bytes[1] == kGzipMagic[1];
}

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path, std::string format, std::string advice, Gzip gzip)
    : name_(path.string()), format_(std::move(format)), advice_(std::move(advice)) {
  // Not blocking, so that a pipe in a file's place is refused instead of waited for.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) fail(0, fmt::format("must be readable, but got: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(file.number, &status) != 0) {
    fail(0, fmt::format("must be readable, but got: {}", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(0,
         fmt::format("must be a file, but is {}", S_ISDIR(status.st_mode) ? "a folder" : "something else"));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
  if (address == MAP_FAILED) fail(0, fmt::format("cannot be mapped: {}", std::strerror(errno)));
  bytes_ = {static_cast<const std::byte*>(address), size};
  mapped_ = true;
  if (gzip == Gzip::expand && is_gzip(bytes_)) {
    ::munmap(address, size);
    mapped_ = false;
    memory_ = InputFile(path, format_, advice_).read_rest();
    bytes_ = std::as_bytes(std::span(memory_));
  }
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
  if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
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

void FileBytes::will_need(std::int64_t offset, std::int64_t count) const {
  if (!mapped_ || offset < 0 || count <= 0 || offset >= size()) return;
  static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t first = offset / page * page, end = offset + std::min(count, size() - offset);
  ::madvise(const_cast<std::byte*>(bytes_.data()) + first, static_cast<std::size_t>(end - first),
            MADV_WILLNEED);
}

void FileBytes::read_at_random() const {
  if (mapped_) ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_RANDOM);
}

std::string FileBytes::where(std::int64_t offset) const {
  return fmt::format("{}, offset {}", name_, offset);
}

void FileBytes::fail(std::int64_t offset, const std::string& message) const {
  detail::fail<IoError>("{}: {}, offset {}: {}; {}", format_, name_, offset, message, advice_);
}

}  // namespace athanor::detail
