#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace athanor {

/// A file that appears whole or not at all, even if the machine stops: written under another name in the same
/// folder, flushed to the disk, renamed, and the folder flushed. Without commit() nothing stays.
/// All members throw IoError naming the file and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Writes at `offset`, where write() does not come, or has been. Threads may write to different places at
  /// once.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Its name until then, for a library that opens and writes it itself.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Whether it is what temporary() has behind the path, as a process that was killed leaves it.
  static bool is_suffix(std::string_view text);
  /// Removes what processes that were killed have left of files they were writing to `folder`. Nobody may be
  /// writing there. What cannot be removed stays.
  static void remove_unfinished(const std::filesystem::path& folder);
  /// Replaces what was at the path.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  [[noreturn]] void fail(const char* what, std::uint64_t offset) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_ = -1;
  bool committed_ = false;
  std::size_t written_ = 0;
};

/// Flushes the names in the folder that `path` is in. False, and errno says why, where that fails; a file
/// system that cannot flush a folder is no failure: the rename itself has happened.
bool flush_folder_of(const std::filesystem::path& path);

}  // namespace athanor
