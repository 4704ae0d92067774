#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace athanor {

/// A file that grows at its end, a whole line or record at a time: a crash leaves no half of one behind
/// others, but at most one at the end, which the next process finds.
class AppendedFile {
 public:
  /// `flag` is what asks for it, for messages. Throws IoError where the file cannot be written.
  AppendedFile(const char* flag, std::filesystem::path path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// What it holds; empty where it is no regular file.
  std::string content() const;
  /// What stands behind its last "\n", of its last 16 MiB.
  std::string unfinished_line() const;
  /// In one piece, or not at all. Throws IoError.
  void append(std::string_view bytes);
  /// Takes so many bytes off its end.
  void remove_last(std::size_t bytes);

 private:
  const char* flag_;
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace athanor
