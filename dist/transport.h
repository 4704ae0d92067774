#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The network below the collectives: messages of bytes between the ranks of a job. Whatever it is (threads of
// one process, MPI), nothing here blocks; who waits is dist/wait.h, with a deadline.

namespace athanor::dist {

/// Tells apart the collectives under way. Messages from one rank to another with the same tag arrive in the
/// order they were sent.
using Tag = std::int32_t;
inline constexpr Tag kTags = 32768;  ///< tags are in [0, kTags): MPI promises no more

/// A message on its way; of the transport that gave it.
struct Request {
  std::int32_t slot = -1;
  bool pending() const { return slot >= 0; }
};

/// One rank's end of the network. Used by one thread at a time. After the first few messages nothing here
/// allocates. Errors: PeerLostError where a rank is known to be gone, BackendError from the library below.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// Begins to send; `bytes` must not change until test() says that it is done.
  virtual Request isend(int to, Tag tag, std::span<const std::byte> bytes) = 0;
  /// Begins to receive a message of exactly so many bytes.
  virtual Request irecv(int from, Tag tag, std::span<std::byte> bytes) = 0;
  /// Whether a message is complete, and its memory free again; it is pending no more then. Never blocks.
  virtual bool test(Request& request) = 0;
  /// Lets go of a message that may never complete: its memory is not touched again. For clearing up.
  virtual void cancel(Request& request) noexcept = 0;

 protected:
  Transport(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

 private:
  int rank_, world_size_;
};

}  // namespace athanor::dist
