#include "tensor/atomic_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tensor/error.h"

namespace athanor {
namespace {

constexpr std::size_t kMax = std::size_t{1} << 30;  // Linux writes no more than 2 GiB at a time

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  static std::atomic<unsigned> serial{0};  // threads of one process may save to one folder
  temporary_ = path_;
  temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), serial.fetch_add(1));
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) fail("cannot create");
}

bool AtomicFile::is_suffix(std::string_view text) {
  if (!text.starts_with('.') || !text.ends_with(".tmp")) return false;
  const std::string_view digits = "0123456789";
  const std::size_t dash = text.find_first_not_of(digits, 1);
  if (dash == text.npos || dash == 1 || text[dash] != '-') return false;
  const std::size_t end = text.find_first_not_of(digits, dash + 1);
  return end > dash + 1 && text.substr(end) == ".tmp";
}

void AtomicFile::remove_unfinished(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::filesystem::path name = at->path().filename();
    std::error_code ignored;
    if (is_suffix(name.stem().extension().string() + name.extension().string()))
      std::filesystem::remove(at->path(), ignored);
  }
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), std::min(bytes.size(), kMax));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    written_ += static_cast<std::size_t>(count);
  }
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(file_, bytes.data(), std::min(bytes.size(), kMax), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write", offset);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0) fail("cannot flush");
  if (::close(std::exchange(file_, -1)) != 0) fail("cannot close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename");
  committed_ = true;
  if (!flush_folder_of(path_)) fail("cannot flush the folder of");
}

bool flush_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return false;
  const int result = ::fsync(handle), reason = errno;
  ::close(handle);
  errno = reason;
  return result == 0 || reason == EINVAL || reason == ENOTSUP;
}

void AtomicFile::fail(const char* what) const {
  fail(what, written_);
}

void AtomicFile::fail(const char* what, std::uint64_t offset) const {
  const int reason = errno;
  const std::string name = (committed_ ? path_ : temporary_).string();
  // After a throwing constructor the destructor does not run, and then there is no file to remove.
  detail::fail<IoError>("save: {} {} at byte {}: {}", what, name, offset, std::strerror(reason));
}

}  // namespace athanor
