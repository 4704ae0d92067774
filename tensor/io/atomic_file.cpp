// Explained in docs/kill_nine.md.
#include "tensor/io/atomic_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "tensor/base/error.h"

namespace athanor {
namespace {

constexpr std::size_t kMax = std::size_t{1} << 30;  // Linux writes no more than 2 GiB at a time

constexpr std::string_view kSuffix = ".tmp";
std::atomic<unsigned> serial{0};  // threads of one process may save to one folder

/// Whether `text` is ".PID-N" and `suffix`.
bool is_unfinished(std::string_view text, std::string_view suffix) {
  if (text.size() <= suffix.size() || !text.starts_with('.') || !text.ends_with(suffix)) return false;
  text.remove_prefix(1);
  text.remove_suffix(suffix.size());
  const std::size_t dash = text.find('-');
  const auto is_number = [](std::string_view digits) {
    return !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
  };
  return dash != text.npos && is_number(text.substr(0, dash)) && is_number(text.substr(dash + 1));
}

// Numbers of processes would not tell who is alive: another machine or container has its own. Files have a
// lock that libraries that write them do not use themselves, as HDF5 uses flock(); folders can only have
// that.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// Whether a process has locked it.
bool is_being_written(const std::filesystem::path& path) {
  struct flock lock = whole_file();
  int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  bool locked = file >= 0 && (::fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK);
  if (file < 0 && errno == EISDIR) {
    file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    locked = ::flock(file, LOCK_EX | LOCK_NB) != 0;
  }
  if (file < 0) return true;
  ::close(file);
  return locked;
}

/// Removes what no process has locked of the unfinished files and folders in `folder`: of those that become
/// `wanted` or, if that is empty, of all.
void remove_leftovers(const std::filesystem::path& folder, std::string_view suffix,
                      const std::string& wanted = {}) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.ends_with(suffix)) continue;
    const std::size_t dot = name.rfind('.', name.size() - suffix.size() - 1);  // that of ".PID-N"
    if (dot == name.npos || !is_unfinished(std::string_view(name).substr(dot), suffix)) continue;
    std::error_code ignored;
    if ((wanted.empty() || name.substr(0, dot) == wanted) && !is_being_written(at->path()))
      std::filesystem::remove_all(at->path(), ignored);
  }
}

}  // namespace

std::filesystem::path unfinished_name(const std::filesystem::path& path, std::string_view suffix) {
  remove_leftovers(path.has_parent_path() ? path.parent_path() : ".", suffix, path.filename().string());
  std::filesystem::path name = path;
  name += fmt::format(".{}-{}{}", ::getpid(), serial.fetch_add(1), suffix);
  return name;
}

int lock_unfinished(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) ::flock(descriptor, LOCK_EX | LOCK_NB);
  return descriptor;
}

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(unfinished_name(path_, kSuffix)) {
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) fail("cannot create");
  struct flock lock = whole_file();
  ::fcntl(file_, F_OFD_SETLK, &lock);  // unfinished_name() leaves it alone
}

bool AtomicFile::is_suffix(std::string_view text) {
  return is_unfinished(text, kSuffix);
}

void AtomicFile::remove_unfinished(const std::filesystem::path& folder) {
  remove_leftovers(folder, kSuffix);
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_at(written_, bytes);
  written_ += bytes.size();
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

void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  write_atomically(path, std::as_bytes(std::span(text)));
}

}  // namespace athanor
