#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tensor/io/pooled_file.h"

namespace athanor::detail {

/// A whole file as bytes: read from the file on use, or in memory if decompressed. It is not mapped, so a
/// file that becomes shorter while open, or a disk that fails, is an error and does not end the process.
/// Every failure is one IoError: `format: FILE, offset N: message; advice`.
class FileBytes {
 public:
  /// `format` names the reader in messages ("npy"); `advice` is for the user of a bad file.
  FileBytes(const std::filesystem::path& path, std::string format, std::string advice);
  /// Bytes from another source; `name` replaces the path in messages.
  FileBytes(std::string name, std::vector<std::uint8_t> content, std::string format, std::string advice);
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::int64_t size() const { return size_; }
  /// When the file was last changed, at opening, in nanoseconds since 1970; 0 for bytes of another source.
  std::int64_t modified_ns() const { return modified_ns_; }
  bool in_memory() const { return !file_; }
  /// Throws if the file ends before byte `offset + count`, as bytes [offset, offset + count) hold `what`; any
  /// numbers are safe.
  void must_have(std::int64_t offset, std::int64_t count, std::string_view what) const;
  /// Throws if the file continues after `offset`.
  void must_end_at(std::int64_t offset) const;
  /// Throws if its first bytes are those of a compressed file, naming the program that expands it.
  void must_not_be_compressed() const;
  /// Bytes [offset, offset + count), checked by must_have(); from a file at most 1 GiB. They may be in
  /// `scratch`, which grows to hold them, and are valid until its next use. Thread-safe with one scratch per
  /// thread.
  std::span<const std::byte> at(std::int64_t offset, std::int64_t count, std::string_view what,
                                std::vector<std::byte>& scratch) const;
  /// All bytes.
  std::vector<std::byte> all() const;
  /// Whether the file has these bytes at `offset`.
  bool has(std::string_view magic, std::int64_t offset = 0) const;

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
  std::shared_ptr<const RegularFile> open(std::int64_t offset) const;
  void read(std::int64_t offset, std::span<std::byte> to, std::string_view what) const;
  bool is_gzip() const;
  std::vector<std::uint8_t> inflated(std::int64_t most) const;
  void hold(std::vector<std::uint8_t> content);

  std::string name_, format_, advice_;
  std::optional<PooledFile> file_;  ///< none: in memory
  std::vector<std::uint8_t> memory_;
  std::int64_t size_ = 0, modified_ns_ = 0;
};

/// Reads a file's headers and numbers by way of one page of memory.
class FilePages {
 public:
  /// `file` must outlive this object.
  explicit FilePages(const FileBytes& file) : file_(file) {}
  FilePages(const FilePages&) = delete;
  FilePages& operator=(const FilePages&) = delete;

  /// FileBytes::at(), valid until the next call.
  std::span<const std::byte> at(std::int64_t offset, std::int64_t count, std::string_view what);

 private:
  const FileBytes& file_;
  std::vector<std::byte> scratch_;
  std::span<const std::byte> page_;
  std::int64_t first_ = 0;  ///< offset of `page_`
};

/// More than the maximum expansion of deflate per byte: a larger size is forged.
inline constexpr std::int64_t kMaxExpansion = 1040;

/// `folder/name`, or `folder/name.gz` if only that exists. Throws IoError if neither exists.
std::filesystem::path find_plain_or_gz(const std::filesystem::path& folder, const std::string& name,
                                       const std::string& format, const std::string& advice);

}  // namespace athanor::detail
