#include "dist/launch/detail/scratch_folder.h"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace athanor::dist {
namespace {

namespace fs = std::filesystem;

constexpr char kMemory[] = "/dev/shm";
constexpr char kLock[] = "lock";

/// Held by whoever has made the folder, until its process ends. (A process id would not do: containers that
/// share the memory of their machine have ids of their own.) -1: somebody else has it, or there is none.
int take(const fs::path& file, int flags) {
  const int lock = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return -1;
  }
  return lock;
}

/// Removes the folders of launchers that were killed.
void remove_orphans(const std::string& ours) {
  std::error_code error;
  for (fs::directory_iterator at(kMemory, error), end; !error && at != end; at.increment(error)) {
    struct stat status {};
    const fs::path path = at->path();
    if (!path.filename().string().starts_with(ours) || ::lstat(path.c_str(), &status) != 0) continue;
    if (!S_ISDIR(status.st_mode) || status.st_uid != ::getuid()) continue;
    const int lock = take(path / kLock, 0);
    if (lock < 0) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
    ::close(lock);
  }
}

}  // namespace

ScratchFolder::ScratchFolder() {
  const std::string ours = fmt::format("athanor.{}.", ::getuid());
  remove_orphans(ours);
  std::string name = fmt::format("{}/{}XXXXXX", kMemory, ours);
  if (!::mkdtemp(name.data())) return;
  path_ = name;
  // It gets its name when it is taken: in between, another launcher would see an orphan.
  const fs::path unnamed = path_ / "untaken";
  lock_ = take(unnamed, O_CREAT);
  std::error_code ignored;
  fs::rename(unnamed, path_ / kLock, ignored);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace athanor::dist
