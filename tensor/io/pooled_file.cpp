#include "tensor/io/pooled_file.h"

#include <list>
#include <tuple>
#include <utility>

#include <sys/stat.h>

namespace athanor {
namespace {

/// Device and inode.
using Identity = std::pair<std::uint64_t, std::uint64_t>;

Identity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino};
}

Identity identity_of(const RegularFile& file) {
  struct stat status {};
  if (!file.problem().empty() || ::fstat(file.descriptor(), &status) != 0) return {};
  return identity_of(status);
}

}  // namespace

/// The open files, in the order in which the clock's hand will come by.
struct PooledFile::Pool {
  std::mutex mutex;
  std::list<const PooledFile*> open;

  /// Makes room for `file`, and adds it.
  void add(const PooledFile& file) {
    const std::lock_guard lock(mutex);
    // A second round finds none used. One that is just being opened or read is not waited for.
    for (std::size_t tries = 2 * open.size(); open.size() >= kMaxOpen && tries > 0; --tries) {
      const PooledFile* const oldest = open.front();
      open.pop_front();
      const std::unique_lock its(oldest->mutex_, std::try_to_lock);
      if (!its || oldest->used_.exchange(false)) {
        open.push_back(oldest);
      } else {
        oldest->descriptor_.store(-1, std::memory_order_relaxed);
        oldest->file_.reset();
      }
    }
    open.push_back(&file);
  }
};

PooledFile::Pool& PooledFile::pool() {
  static Pool& one = *new Pool;  // never destroyed: files may be, later
  return one;
}

PooledFile::PooledFile(std::filesystem::path path)
    : path_(std::move(path)), file_(std::make_shared<RegularFile>(path_)) {
  std::tie(device_, inode_) = identity_of(*file_);
  if (file_->problem().empty()) descriptor_ = file_->descriptor();
  pool().add(*this);
}

PooledFile::~PooledFile() {
  const std::lock_guard lock(pool().mutex);
  pool().open.remove(this);
}

std::shared_ptr<const RegularFile> PooledFile::open(std::string& problem) const {
  const std::lock_guard lock(mutex_);
  used_.store(true, std::memory_order_relaxed);
  if (!file_) {
    auto file = std::make_shared<const RegularFile>(path_);
    problem = file->problem();
    if (problem.empty() && identity_of(*file) != Identity(device_, inode_))
      problem = "must stay the same file while in use, but another has taken its place";
    if (!problem.empty()) return nullptr;
    file_ = std::move(file);
    descriptor_.store(file_->descriptor(), std::memory_order_relaxed);
    pool().add(*this);
  }
  problem = file_->problem();
  return problem.empty() ? file_ : nullptr;
}

// Readers of a mapped file ask before each sample, so that a lock, or a count of those who hold the file,
// would go from core to core. If another thread closes the file meanwhile, its number names no file, another
// one, which its identity shows, or the same file again, whose size is as good.
std::int64_t PooledFile::bytes_now(std::string& problem) const {
  struct stat status {};
  const int descriptor = descriptor_.load(std::memory_order_relaxed);
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0 ||
      identity_of(status) != Identity(device_, inode_)) {
    const std::shared_ptr<const RegularFile> file = open(problem);
    return file ? file->bytes_now() : -1;
  }
  if (!used_.load(std::memory_order_relaxed)) used_.store(true, std::memory_order_relaxed);
  return status.st_size;
}

std::size_t PooledFile::open_files() {
  const std::lock_guard lock(pool().mutex);
  return pool().open.size();
}

}  // namespace athanor
