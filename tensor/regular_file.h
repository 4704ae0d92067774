#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace athanor {

/// A file opened to be read. What stands in a file's place and is none (a FIFO, a socket, a device, a folder)
/// is refused at once: nobody waits for the other end of a pipe.
class RegularFile {
 public:
  static constexpr int kWorkingFolder = -100;

  /// `folder`: the descriptor of the folder that a relative `path` is below.
  explicit RegularFile(const std::filesystem::path& path, int folder = kWorkingFolder);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  /// Why there is no such file, without its name; empty where there is: "must be a file, but is a FIFO".
  const std::string& problem() const { return problem_; }
  int descriptor() const { return descriptor_; }
  /// Its size when it was opened, and now (0 where that cannot be told).
  std::int64_t bytes() const { return bytes_; }
  std::int64_t bytes_now() const;
  /// Fills `to` from `offset` on. Returns how much there was: less at the end of the file, or where the
  /// system cannot read, and then errno says why; else errno is 0.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  std::string problem_;
};

}  // namespace athanor
