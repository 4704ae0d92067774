#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::detail {

/// A whole file as bytes: mapped read-only, or in memory where it had to be decompressed. A mapped file must
/// not be shortened while it is open. Every failure is one IoError: `format: FILE, offset N: message;
/// advice`.
class FileBytes {
 public:
  enum class Gzip : std::uint8_t { expand, refuse };

  /// `format` names the reader in messages ("npy"); `advice` says what to do about a bad file.
  FileBytes(const std::filesystem::path& path, std::string format, std::string advice,
            Gzip gzip = Gzip::refuse);
  /// Bytes that came out of something else; `name` stands in messages for the path.
  FileBytes(std::string name, std::vector<std::uint8_t> content, std::string format, std::string advice);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::int64_t size() const { return std::ssize(bytes_); }
  bool mapped() const { return mapped_; }
  /// Bytes [offset, offset + count), which hold `what`. Throws where the file ends before; any numbers are
  /// safe.
  std::span<const std::byte> at(std::int64_t offset, std::int64_t count, std::string_view what) const;
  /// Asks the system to read bytes [offset, offset + count) ahead.
  void will_need(std::int64_t offset, std::int64_t count) const;
  /// Says that reads will jump about: the system then reads nothing ahead on its own.
  void read_at_random() const;

  const std::string& name() const { return name_; }
  /// "FILE, offset N".
  std::string where(std::int64_t offset) const;
  [[noreturn]] void fail(std::int64_t offset, const std::string& message) const;

 private:
  std::string name_;
  std::string format_;
  std::string advice_;
  std::span<const std::byte> bytes_;
  std::vector<std::uint8_t> memory_;
  bool mapped_ = false;
};

}  // namespace athanor::detail
