#pragma once

#include <filesystem>

namespace athanor::dist {

/// A folder in memory (below /dev/shm) for what processes may leave behind when they are killed. Goes with
/// this object; those of processes that were killed themselves go when the next one is made.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  /// Empty where none can be made.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace athanor::dist
