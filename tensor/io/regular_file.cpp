#include "tensor/io/regular_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/io/file_kind.h"

namespace athanor {
namespace {

const char* name_of_kind(mode_t kind) {
  if (S_ISDIR(kind)) return "a folder";
  if (S_ISFIFO(kind)) return "a FIFO";
  if (S_ISSOCK(kind)) return "a socket";
  if (S_ISCHR(kind) || S_ISBLK(kind)) return "a device";
  return "something else";
}

int open_for_reading(const std::filesystem::path& path, int folder) {
  int descriptor = -1, tries = 0;
  do {
    descriptor = ::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (descriptor < 0 && try_again(tries));
  return descriptor;
}

bool may_pass(int error) {
  return error == EIO || error == ESTALE || error == EAGAIN || error == ETIMEDOUT;
}

std::atomic<std::int64_t> repeated{0};
std::atomic<int> last_error{0};

}  // namespace

static_assert(RegularFile::kWorkingFolder == AT_FDCWD);

RegularFile::RegularFile(const std::filesystem::path& path, int folder)
    : descriptor_(open_for_reading(path, folder)) {
  struct stat status {};
  if (descriptor_ < 0 && errno == ENXIO) {  // a special file without a reader or device
    problem_ = "must be a file, but is a socket or a device";
  } else if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    problem_ = fmt::format("cannot be read: {}{}", std::strerror(errno),
                           errno == EMFILE ? " (ulimit -n allows no more)" : "");
  } else if (!S_ISREG(status.st_mode)) {
    problem_ = fmt::format("must be a file, but is {}", name_of_kind(status.st_mode));
  } else {
    bytes_ = status.st_size;
    modified_ns_ = status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
  }
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string RegularFile::kind() const {
  std::array<std::byte, 512> first{};
  const std::size_t bytes = read_at(0, first);
  return problem_.empty() ? file_kind({reinterpret_cast<const char*>(first.data()), bytes}) : "";
}

std::int64_t RegularFile::bytes_now() const {
  struct stat status {};
  return ::fstat(descriptor_, &status) == 0 ? status.st_size : 0;
}

std::size_t RegularFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  constexpr std::size_t kMax = std::size_t{1} << 30;  // Linux reads no more than 2 GiB at a time
  std::size_t done = 0;
  int tries = 0;
  while (problem_.empty() && done < to.size()) {
    errno = 0;
    const ssize_t count = ::pread(descriptor_, to.data() + done, std::min(to.size() - done, kMax),
                                  static_cast<off_t>(offset + done));
    if (count < 0 && try_again(tries)) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

bool try_again(int& tries) {
  return try_again(tries, [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); });
}

bool try_again(int& tries, const std::function<void(std::chrono::milliseconds)>& pause) {
  constexpr std::array kPauses_ms{40, 160, 640};
  const int error = errno;
  if (error == EINTR) return true;
  if (!may_pass(error) || tries >= std::ssize(kPauses_ms)) return false;
  last_error = error;
  ++repeated;
  pause(std::chrono::milliseconds(kPauses_ms[static_cast<std::size_t>(tries++)]));
  errno = error;
  return true;
}

RepeatedReads take_repeated_reads() {
  return {repeated.exchange(0), last_error};
}

}  // namespace athanor
