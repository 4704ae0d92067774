#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

#include <sys/types.h>

// Libraries that do not survive the files they read are called in a process of their own. It is forked, not
// executed: a library has no program of its own to start, and what the child needs is in memory already. Of a
// process with many threads the child has one, which calls nothing of ours but its work; it must not begin
// threads, nor touch a device, whose driver it does not have.

namespace athanor::detail {

/// How a child failed: its own message, in one line, where `lost` is false; else how it ended.
struct ChildFailure : std::runtime_error {
  ChildFailure(const std::string& what, bool was_lost) : std::runtime_error(what), lost(was_lost) {}
  bool lost;
};

/// A process that does one piece of work and exchanges bytes with its owner, in order.
class ChildProcess {
 public:
  /// The child's end. Where the owner is gone, so is the child.
  class Owner {
   public:
    explicit Owner(int socket) : socket_(socket) {}
    /// Fills `to`; where no more comes, false.
    bool read(std::span<std::byte> to);
    void write(std::span<const std::byte> bytes);

   private:
    int socket_;
  };
  /// What the child does. What it throws is the owner's ChildFailure.
  using Work = std::function<void(Owner&)>;
  enum class Files : bool { none, may_write };  ///< whether the child can write to files

  /// Bytes of memory that the child may have beyond what its owner had.
  static constexpr std::size_t kMoreMemory = std::size_t{4} << 30;

  /// Forks. `patience_s`: how long the child may keep its owner waiting, > 0; then it is ended. Throws
  /// IoError where there is no process, no memory or no descriptor to be had.
  ChildProcess(const Work& work, double patience_s, Files files = Files::none);
  /// Ends the child, whatever it does.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// What the child writes. It can be anything: a library whose memory is damaged may say what it likes.
  /// These three throw ChildFailure; they are not thread-safe.
  void read(std::span<std::byte> to);
  void write(std::span<const std::byte> bytes);
  /// Says that no more is written, and waits until the work is done.
  void finish();
  pid_t pid() const { return pid_; }

 private:
  void wait_for(short events);
  [[noreturn]] void fail(int status);
  int reap();
  void release();

  double patience_s_;
  std::span<char> message_;  ///< what the child says of its failure: memory of both
  int socket_ = -1;
  pid_t pid_ = -1;  ///< -1: it was reaped
};

}  // namespace athanor::detail
