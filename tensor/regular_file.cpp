#include "tensor/regular_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace athanor {
namespace {

const char* name_of_kind(mode_t kind) {
  if (S_ISDIR(kind)) return "a folder";
  if (S_ISFIFO(kind)) return "a FIFO";
  if (S_ISSOCK(kind)) return "a socket";
  if (S_ISCHR(kind) || S_ISBLK(kind)) return "a device";
  return "something else";
}

}  // namespace

static_assert(RegularFile::kWorkingFolder == AT_FDCWD);

RegularFile::RegularFile(const std::filesystem::path& path, int folder)
    : descriptor_(::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  struct stat status {};
  if (descriptor_ < 0 && errno == ENXIO) {  // a special file without a reader or device
    problem_ = "must be a file, but is a socket or a device";
  } else if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    problem_ = fmt::format("cannot be read: {}", std::strerror(errno));
  } else if (!S_ISREG(status.st_mode)) {
    problem_ = fmt::format("must be a file, but is {}", name_of_kind(status.st_mode));
  } else {
    bytes_ = status.st_size;
  }
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::int64_t RegularFile::bytes_now() const {
  struct stat status {};
  return ::fstat(descriptor_, &status) == 0 ? status.st_size : 0;
}

std::size_t RegularFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  constexpr std::size_t kMax = std::size_t{1} << 30;  // Linux reads no more than 2 GiB at a time
  std::size_t done = 0;
  while (problem_.empty() && done < to.size()) {
    errno = 0;
    const ssize_t count = ::pread(descriptor_, to.data() + done, std::min(to.size() - done, kMax),
                                  static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace athanor
