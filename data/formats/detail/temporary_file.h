#pragma once

#include <filesystem>

namespace athanor::detail {

/// A name beside `path` for a library to write to, which becomes `path` when the file is whole; without
/// commit() nothing stays. The folder is made where there is none, and goes again too. Throws IoError.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& name() const { return temporary_; }
  /// Flushes what was written under name() and renames it; replaces what was at the path.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  bool made_folder_ = false, committed_ = false;
};

}  // namespace athanor::detail
