#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace athanor::detail {

/// A whole file as bytes: mapped read-only, or in memory if decompressed. A mapped file must not be shortened
/// while open. Every failure is one IoError: `format: FILE, offset N: message; advice`.
class FileBytes {
 public:
  /// `format` names the reader in messages ("npy"); `advice` is for the user of a bad file.
  FileBytes(const std::filesystem::path& path, std::string format, std::string advice);
  /// Bytes from another source; `name` replaces the path in messages.
  FileBytes(std::string name, std::vector<std::uint8_t> content, std::string format, std::string advice);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::int64_t size() const { return std::ssize(bytes_); }
  /// Bytes [offset, offset + count), which hold `what`. Throws if the file ends earlier; any numbers are
  /// safe.
  std::span<const std::byte> at(std::int64_t offset, std::int64_t count, std::string_view what) const;
  /// Throws if the file continues after `offset`.
  void must_end_at(std::int64_t offset) const;

  /// For a gzip file, its content's size from the last four bytes; for any other file, size().
  std::int64_t stated_size() const;
  /// The first `most` bytes of the file, or of a gzip file's content; fewer if it is shorter.
  FileBytes head(std::int64_t most) const;
  /// Replaces a gzip file by its content, which must be `count` bytes: inflates no more, and nothing if so
  /// small a file cannot hold as many. Does nothing for any other file.
  void expand(std::int64_t count);

  /// Asks the system to read bytes [offset, offset + count) ahead.
  void will_need(std::int64_t offset, std::int64_t count) const;

  const std::string& name() const { return name_; }
  /// "FILE, offset N".
  std::string where(std::int64_t offset) const { return fmt::format("{}, offset {}", name_, offset); }
  template <class... Args>
  [[noreturn]] void fail(std::int64_t offset, fmt::format_string<Args...> message, Args&&... args) const {
    fail_with(offset, fmt::format(message, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void fail_with(std::int64_t offset, const std::string& message) const;
  std::vector<std::uint8_t> inflated(std::int64_t most) const;
  void unmap();

  std::string name_, format_, advice_;
  std::span<const std::byte> bytes_;
  std::vector<std::uint8_t> memory_;
  bool mapped_ = false;
};

/// More than the maximum expansion of deflate per byte: a larger size is forged.
inline constexpr std::int64_t kMaxExpansion = 1040;

/// `folder/name`, or `folder/name.gz` if only that exists. Throws IoError if neither exists.
std::filesystem::path find_plain_or_gz(const std::filesystem::path& folder, const std::string& name,
                                       const std::string& format, const std::string& advice);

}  // namespace athanor::detail
