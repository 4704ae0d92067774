#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

#include <sys/types.h>

// Runs libraries that can crash on damaged files in a child process. It is forked, not executed: a library
// has no program of its own to start, and the child's input is already in memory. After the fork the child
// has a single thread and runs only its work. It must not start threads or use a device, whose driver does
// not survive a fork.

namespace athanor::detail {

/// How a child failed. If `lost` is false, its own message, in one line; else how the process ended.
struct ChildFailure : std::runtime_error {
  ChildFailure(const std::string& what, bool was_lost) : std::runtime_error(what), lost(was_lost) {}
  bool lost;
};

/// A process that does one piece of work and exchanges bytes with its owner, in order.
class ChildProcess {
 public:
  /// The child's end of the connection. The child ends when its owner has ended.
  class Owner {
   public:
    explicit Owner(int socket) : socket_(socket) {}
    /// Fills `to`; false if the owner sends no more.
    bool read(std::span<std::byte> to);
    void write(std::span<const std::byte> bytes);

   private:
    int socket_;
  };
  /// The child's work. An exception from it becomes the owner's ChildFailure.
  using Work = std::function<void(Owner&)>;
  enum class Files : bool { none, may_write };  ///< whether the child can write to files

  /// Maximum bytes of memory that the child may allocate beyond its owner's.
  static constexpr std::size_t kMoreMemory = std::size_t{4} << 30;

  /// Forks. `patience_s`: maximum seconds that the child may keep its owner waiting, > 0; then it is killed.
  /// Throws IoError if no process, memory or descriptor is available.
  ChildProcess(const Work& work, double patience_s, Files files = Files::none);
  /// Kills the child if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Bytes the child wrote. Check them: a library with corrupted memory may write anything. These three throw
  /// ChildFailure; they are not thread-safe.
  void read(std::span<std::byte> to);
  void write(std::span<const std::byte> bytes);
  /// Announces the end of the input, and waits until the work is done.
  void finish();
  pid_t pid() const { return pid_; }

 private:
  void wait_for(short events);
  [[noreturn]] void fail(int status);
  int reap();
  void release();

  double patience_s_;
  std::span<char> message_;  ///< the child's error message, in shared memory
  int socket_ = -1;
  pid_t pid_ = -1;  ///< -1: already reaped
};

}  // namespace athanor::detail
