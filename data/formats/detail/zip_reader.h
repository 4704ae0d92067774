#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/formats/detail/file_bytes.h"

namespace athanor::detail {

/// A zip archive's members, stored or deflated, through libzip. Without it the constructor throws IoError
/// that says so.
class ZipReader {
 public:
  explicit ZipReader(const std::filesystem::path& path);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  bool has(const std::string& member) const;
  /// How long the member says it is. Throws IoError where there is none, or the archive cannot hold as much.
  std::int64_t size(const std::string& member) const;
  /// The member, its CRC-32 checked, under the name "FILE:MEMBER"; with `most`, only its first bytes. Throws
  /// IoError.
  std::shared_ptr<const FileBytes> read(const std::string& member, std::int64_t most = INT64_MAX) const;
  [[noreturn]] void fail(const std::string& message) const { file_.fail(0, message); }

 private:
  std::uint64_t find(const std::string& member) const;
  [[noreturn]] void fail_in(const std::string& member, std::int64_t offset, const std::string& message) const;

  FileBytes file_;
  void* archive_ = nullptr;
};

}  // namespace athanor::detail
