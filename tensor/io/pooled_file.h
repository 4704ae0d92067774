#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "tensor/io/regular_file.h"

namespace athanor {

/// A file that is read now and then, as one of many: of all such files of a process at most kMaxOpen are open
/// while nobody reads, so that a set of 10,000 shards needs no other `ulimit -n`. One that was closed is
/// opened again when it is needed. Those that were not used for longest are closed (the clock algorithm).
class PooledFile {
 public:
  static constexpr std::size_t kMaxOpen = 256;

  /// Opens it; the first open() says why it cannot be read.
  explicit PooledFile(std::filesystem::path path);
  ~PooledFile();
  PooledFile(const PooledFile&) = delete;
  PooledFile& operator=(const PooledFile&) = delete;

  /// The open file, which stays so as long as the result is held. Null if it cannot be read, or if another
  /// file has taken its name since it was first opened: `problem` then says it as RegularFile::problem()
  /// does. Thread-safe.
  std::shared_ptr<const RegularFile> open(std::string& problem) const;
  /// Its size now, or -1 where open() is null. Takes no lock while it is open. Thread-safe.
  std::int64_t bytes_now(std::string& problem) const;
  /// How many are open in this process, without those that only a reader holds.
  static std::size_t open_files();

 private:
  struct Pool;
  static Pool& pool();

  std::filesystem::path path_;
  std::uint64_t device_ = 0, inode_ = 0;  ///< of the first opening
  mutable std::mutex mutex_;              ///< guards writes of `file_` and `descriptor_`
  mutable std::shared_ptr<const RegularFile> file_;
  mutable std::atomic<int> descriptor_ = -1;  ///< of `file_`, or -1
  mutable std::atomic<bool> used_ = true;     ///< since the clock's hand came by
};

}  // namespace athanor
