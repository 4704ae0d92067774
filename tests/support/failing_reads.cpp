// A module for LD_PRELOAD: reads and openings of files below a folder fail as those of a network's file
// system do.
//   FAILING_READS=FOLDER    which files
//   FAILING_READS_EVERY=N   every Nth call fails once: EIO, ESTALE, EAGAIN, EINTR, or it reads half of the
//   bytes, by turns FAILING_READS_CUT=N     before the Nth read, the file is cut in half

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

long number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? std::atol(text) : 0;
}

bool lies_below(const char* path) {
  static const char* const folder = std::getenv("FAILING_READS");
  return folder && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

/// The path of an open file; empty if it lies elsewhere.
std::string path_of(int file) {
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  char path[PATH_MAX] = {};
  if (::readlink(link.c_str(), path, sizeof path - 1) < 0 || !lies_below(path)) return {};
  return path;
}

void cut_before_its_turn(const std::string& path) {
  static const long at = number("FAILING_READS_CUT");
  static std::atomic<long> reads{0};
  struct stat status {};
  if (at > 0 && ++reads == at && ::stat(path.c_str(), &status) == 0)
    (void)!::truncate(path.c_str(), status.st_size / 2);
}

constexpr int kShort = -1;

/// What happens to this call: 0, nothing; an errno; or kShort.
int fault() {
  static const long every = number("FAILING_READS_EVERY");
  static std::atomic<long> calls{0};
  constexpr std::array kFaults{EIO, kShort, ESTALE, EINTR, EAGAIN};
  if (every == 0) return 0;
  const long call = ++calls;
  return call % every == 0 ? kFaults[static_cast<std::size_t>(call / every - 1) % kFaults.size()] : 0;
}

template <class Read> ssize_t read_with_faults(int file, std::size_t count, const Read& read) {
  const std::string path = path_of(file);
  if (path.empty()) return read(count);
  cut_before_its_turn(path);
  const int one = fault();
  if (one == kShort) return read((count + 1) / 2);
  if (one == 0) return read(count);
  errno = one;
  return -1;
}

template <class Function> Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t read(int file, void* to, std::size_t count) {
  static auto* const next = real<ssize_t(int, void*, std::size_t)>("read");
  return read_with_faults(file, count, [&](std::size_t some) { return next(file, to, some); });
}

ssize_t pread(int file, void* to, std::size_t count, off_t offset) {
  static auto* const next = real<ssize_t(int, void*, std::size_t, off_t)>("pread");
  return read_with_faults(file, count, [&](std::size_t some) { return next(file, to, some, offset); });
}

int openat(int folder, const char* path, int flags, ...) {
  static auto* const next = real<int(int, const char*, int, ...)>("openat");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  const int file = next(folder, path, flags, mode);
  const bool reads = (flags & (O_ACCMODE | O_DIRECTORY)) == O_RDONLY;
  const int one = file >= 0 && reads && !path_of(file).empty() ? fault() : 0;
  if (one <= 0) return file;
  ::close(file);
  errno = one;
  return -1;
}

}  // extern "C"
