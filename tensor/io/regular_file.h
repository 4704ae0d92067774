#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace athanor {

/// A file opened for reading. Anything that is not a regular file (a FIFO, a socket, a device, a folder) is
/// refused at once, so that opening never blocks on a pipe.
class RegularFile {
 public:
  static constexpr int kWorkingFolder = -100;

  /// `folder`: the descriptor of the folder to which a relative `path` refers.
  explicit RegularFile(const std::filesystem::path& path, int folder = kWorkingFolder);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  /// Why the file cannot be read, without its name: "must be a file, but is a FIFO"; empty if it can.
  const std::string& problem() const { return problem_; }
  /// file_kind() of its first bytes; empty if it cannot be read.
  std::string kind() const;
  int descriptor() const { return descriptor_; }
  /// When it was last changed, at opening: nanoseconds since 1970.
  std::int64_t modified_ns() const { return modified_ns_; }
  /// Its size at opening, and now (0 if unknown).
  std::int64_t bytes() const { return bytes_; }
  std::int64_t bytes_now() const;
  /// Fills `to` from `offset` on. Returns the number of bytes read: fewer at the end of the file or on an
  /// error that lasts (try_again()), which sets errno; otherwise errno is 0.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  int descriptor_ = -1;
  std::int64_t bytes_ = 0, modified_ns_ = 0;
  std::string problem_;
};

/// Whether to repeat a system call of reading that has failed and set errno: at once if a signal interrupted
/// it. After an error that may pass, of a disk or a network file system (EIO, ESTALE, EAGAIN, ETIMEDOUT), up
/// to three times, each after a longer pause, within a second; `tries` counts them from 0. Leaves errno
/// unchanged.
bool try_again(int& tries);
/// The same with another way to wait.
bool try_again(int& tries, const std::function<void(std::chrono::milliseconds)>& pause);

/// Reads of this process that were repeated after such an error since the last call, and its errno.
struct RepeatedReads {
  std::int64_t count = 0;
  int error = 0;
};
RepeatedReads take_repeated_reads();

}  // namespace athanor
