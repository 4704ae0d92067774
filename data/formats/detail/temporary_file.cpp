#include "data/formats/detail/temporary_file.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "tensor/error.h"

namespace athanor::detail {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

/// False, and errno says why, where it cannot be flushed.
bool flush(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const int result = ::fsync(file), reason = errno;
  ::close(file);
  errno = reason;
  return result == 0;
}

}  // namespace

TemporaryFile::TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {
  static std::atomic<unsigned> serial{0};
  temporary_ = path_;
  temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), serial.fetch_add(1));
  std::error_code error;
  made_folder_ = std::filesystem::create_directory(folder_of(path_), error);
}

TemporaryFile::~TemporaryFile() {
  if (committed_) return;
  ::unlink(temporary_.c_str());
  if (made_folder_) ::rmdir(folder_of(path_).c_str());
}

void TemporaryFile::commit() {
  const auto check = [&](bool good, const char* what) {
    if (!good) fail<IoError>("save: cannot {} {}: {}", what, temporary_.string(), std::strerror(errno));
  };
  check(flush(temporary_), "flush");
  check(::rename(temporary_.c_str(), path_.c_str()) == 0, "rename");
  committed_ = true;
  // Some file systems cannot flush a folder; the rename itself has happened.
  check(flush(folder_of(path_)) || errno == EINVAL || errno == ENOTSUP, "flush the folder of");
}

}  // namespace athanor::detail
