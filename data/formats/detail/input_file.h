#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// A file read from front to back, decompressed on the way where it is a gzip file. Every failure is one
/// IoError: what was expected, of which file, at which offset (of the decompressed bytes).
class InputFile {
 public:
  /// `format` names the reader in messages ("mnist"); `advice` says what to do about a bad file.
  InputFile(std::filesystem::path path, std::string format, std::string advice);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Fills `bytes`, which hold `what`. Throws where the file ends first, or is damaged.
  void read(std::span<std::uint8_t> bytes, std::string_view what);
  /// The next `count` bytes. Memory grows with what is really there: a damaged header that promises
  /// terabytes fails at the end of the file.
  std::vector<std::uint8_t> read_vector(std::int64_t count, std::string_view what);
  /// All bytes from here to the end.
  std::vector<std::uint8_t> read_rest();
  /// A big-endian 32-bit number.
  std::uint32_t read_u32(std::string_view what);
  /// Throws unless the file ends here.
  void expect_end();

  std::int64_t offset() const { return offset_; }
  /// Throws the IoError `format: PATH, offset N: message; advice`.
  [[noreturn]] void fail(std::int64_t offset, const std::string& message) const;

 private:
  std::int64_t read_some(std::uint8_t* to, std::int64_t count);

  std::filesystem::path path_;
  std::string format_;
  std::string advice_;
  void* file_ = nullptr;  // a gzFile, which reads plain files too
  std::int64_t offset_ = 0;
};

/// `folder/name`, or `folder/name.gz` where only that exists. Throws IoError where neither does.
std::filesystem::path find_plain_or_gz(const std::filesystem::path& folder, const std::string& name,
                                       const std::string& format, const std::string& advice);

/// The content of a gzip file held in memory. Throws IoError naming `what` when it is damaged.
std::string gunzip(std::span<const unsigned char> bytes, std::string_view what);

}  // namespace athanor
