#include "dist/launch/detail/scratch_folder.h"

#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/error.h"

namespace athanor::dist {
namespace {

namespace fs = std::filesystem;

/// Locks the folder itself; the creator holds the lock until its process ends. (A process id would not do:
/// containers that share memory have separate ids.) Returns -1 if another process holds it, or another user
/// owns the folder.
int lock(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY);
  struct stat status {};
  const bool ours = file >= 0 && ::fstat(file, &status) == 0 && status.st_uid == ::getuid();
  if (ours && ::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  if (file >= 0) ::close(file);
  return -1;
}

/// Removes the folders of launchers that were killed.
void remove_orphans(const fs::path& parent, const std::string& ours) {
  std::error_code error, ignored;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(ours)) continue;
    const int locked = lock(at->path());
    if (locked < 0) continue;
    fs::remove_all(at->path(), ignored);
    ::close(locked);
  }
}

}  // namespace

ScratchFolder::ScratchFolder(std::uintmax_t bytes) {
  const std::string ours = fmt::format("athanor.{}.", ::getuid());
  std::error_code error;
  const fs::path parents[] = {"/dev/shm", fs::temp_directory_path(error)};
  for (const fs::path& parent : parents) {
    remove_orphans(parent, ours);
    const fs::space_info space = fs::space(parent, error);
    if (error || space.available < bytes) continue;
    // Before it is locked, another launcher may remove it as an orphan: then a new one is created.
    for (int attempt = 0; attempt < 10; ++attempt) {
      std::string name = parent / (ours + "XXXXXX");
      if (!::mkdtemp(name.data())) break;
      lock_ = lock(name);
      if (lock_ >= 0 && fs::exists(name, error)) {
        path_ = name;
        return;
      }
      if (lock_ >= 0) ::close(lock_);
      fs::remove_all(name, error);
    }
  }
  detail::fail<BackendError>(
      "ranks: {} or {} must have {} MB free for data that ranks share, but neither has", parents[0].string(),
      parents[1].string(), bytes >> 20);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_);
}

}  // namespace athanor::dist
