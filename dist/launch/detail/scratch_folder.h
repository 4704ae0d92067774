#pragma once

#include <cstdint>
#include <filesystem>

namespace athanor::dist {

/// A folder in memory (below /dev/shm), or else in the system's folder for temporary files, for what
/// processes may leave behind when they are killed. Goes with this object; those of processes that were
/// killed themselves go when the next one is made.
class ScratchFolder {
 public:
  /// Throws BackendError where neither has so many bytes free.
  explicit ScratchFolder(std::uintmax_t bytes);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace athanor::dist
