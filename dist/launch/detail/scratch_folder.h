#pragma once

#include <cstdint>
#include <filesystem>

namespace athanor::dist {

/// A folder in memory (below /dev/shm), or else in the system's temporary folder, for files that killed
/// processes may leave behind. Removed with this object; the next one removes folders of killed owners.
class ScratchFolder {
 public:
  /// Throws BackendError if neither has that many bytes free.
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
