#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace athanor {

/// A file that appears complete or not at all, even if the machine stops: written under a temporary name in
/// the same folder (unfinished_name()), flushed, renamed, and the folder flushed. Without commit() it is
/// removed.
/// All members throw IoError naming the file and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Writes at `offset`, in a range that write() does not use. Threads may write to different ranges
  /// concurrently.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Its temporary name, for a library that opens and writes the file itself.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Whether `text` is the suffix of a temporary name, as left behind by a killed process.
  static bool is_suffix(std::string_view text);
  /// Removes the temporary files in `folder` that no process has locked: killed ones have left them. Those
  /// that cannot be removed remain.
  static void remove_unfinished(const std::filesystem::path& folder);
  /// Replaces any file at the path.
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

/// A whole AtomicFile with this content.
void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// A new name, "PATH.PID-N" and `suffix`, for what becomes `path` once it is complete. Removes what killed
/// processes have left under such names of `path`: files or folders that no process has locked.
std::filesystem::path unfinished_name(const std::filesystem::path& path, std::string_view suffix);
/// Locks an unfinished folder until the returned descriptor is closed; -1 if it cannot be opened. AtomicFile
/// locks its file.
int lock_unfinished(const std::filesystem::path& folder);

/// Flushes the directory entries of the folder of `path`. On failure returns false and sets errno. A file
/// system that cannot flush folders is no failure: the rename itself has happened.
bool flush_folder_of(const std::filesystem::path& path);

}  // namespace athanor
