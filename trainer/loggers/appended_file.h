#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace athanor {

/// An append-only file, extended by a whole line or record at a time. After a crash only the last one can be
/// incomplete; the next process detects that. If another program removes the file or its folder, a new one
/// continues it.
class AppendedFile {
 public:
  /// `flag` requests the file, for messages. Throws IoError if it cannot be written.
  AppendedFile(const char* flag, std::filesystem::path path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Its content; empty if it is not a regular file.
  std::string content() const;
  /// The text after its last "\n", within the last 16 MiB.
  std::string unfinished_line() const;
  /// Sets what a file begins with that continues a removed one: a header.
  void begin_with(std::string head) { head_ = std::move(head); }
  /// Appends all bytes or none. Throws IoError.
  void append(std::string_view bytes);
  /// Removes this many bytes from its end.
  void remove_last(std::size_t bytes);

 private:
  bool reopen_if_removed();

  const char* flag_;
  std::filesystem::path path_;
  std::string head_;
  int file_ = -1;
};

}  // namespace athanor
