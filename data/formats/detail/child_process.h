#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

// Libraries that do not survive the files they read are called in a process of their own. It is forked, not
// executed: a library has no program of its own to start, and what the child needs is in memory already. Of a
// process with many threads the child has one, which calls nothing of ours but what serves; it must not begin
// threads, nor touch a device, whose driver it does not have.

namespace athanor::detail {

/// A process that answers requests, one at a time, until its owner or its owner's process ends.
class ChildProcess {
 public:
  /// What the child does: answers `request`, with more than fits an answer written to `window`. What it
  /// throws arrives as refused.
  using Serve = std::function<std::string(std::string_view request, std::span<std::byte> window)>;
  static constexpr std::size_t kMostBytes = 4096;  ///< of a request and of an answer
  /// Bytes of memory that the child may have beyond what its owner had.
  static constexpr std::size_t kMoreMemory = std::size_t{4} << 30;

  enum class Outcome { answered, refused, lost };
  struct Answer {
    Outcome outcome = Outcome::lost;
    std::string text;  ///< the answer, why it was refused, or how the child was lost: it "was ended by ..."
  };

  /// Forks. The window of `window_bytes` costs what is written to it; it stays where it is. Throws IoError
  /// where there is no process, no memory or no descriptor to be had.
  ChildProcess(std::size_t window_bytes, Serve serve);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Not thread-safe. Once the child is lost, so are all answers. `patience_s`: how long one may take, > 0.
  Answer ask(std::string_view request, double patience_s);
  /// What the child wrote last; it can write at any time, so copy before you check.
  std::span<const std::byte> window() const { return window_; }
  pid_t pid() const { return pid_; }

 private:
  Answer lose(std::string how);
  std::string reap();

  std::span<std::byte> window_;
  int socket_ = -1;
  pid_t pid_ = -1;    ///< -1: it was reaped
  std::string lost_;  ///< how, once it is
};

}  // namespace athanor::detail
