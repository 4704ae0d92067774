#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tensor/stream.h"

// The network below the collectives: messages of bytes between the ranks of a job. Whatever it is (threads of
// one process, MPI), nothing here blocks; who waits is dist/collectives/wait.h, with a deadline.

namespace athanor::dist {

class Collective;
struct NativeCall;
class Session;

/// Tells apart the collectives under way. Messages from one rank to another with the same tag arrive in the
/// order they were sent.
using Tag = std::int32_t;
inline constexpr Tag kTags = 32768;  ///< tags are in [0, kTags): MPI promises no more

/// A message on its way; of the transport that gave it.
struct Request {
  std::int32_t slot = -1;
  bool pending() const { return slot >= 0; }
};

/// One rank's end of the network. Messages are memory of the host, or of a GPU, where collectives queue all
/// they do on one stream (dist/collectives/on_stream.h). Used by one thread at a time. After the first few
/// messages nothing here allocates. Throws PeerLostError where a rank is known to be gone; BackendError.
class Transport {
 public:
  virtual ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  /// Where the memory of messages is.
  Device device() const { return stream_.device(); }
  /// The queue of that device which collectives use; on the CPU, everything is done when a call returns.
  const Stream& stream() const { return stream_; }

  /// Begins to send; `bytes` must not change until test() says that it is done.
  virtual Request isend(int to, Tag tag, std::span<const std::byte> bytes) = 0;
  /// Begins to receive a message of exactly so many bytes.
  virtual Request irecv(int from, Tag tag, std::span<std::byte> bytes) = 0;
  /// Whether a message is complete, on a device for what is queued on stream() from now on; it is pending no
  /// more then. Never blocks.
  virtual bool test(Request& request) = 0;
  /// Lets go of a message that may never complete: its memory is not touched again. For clearing up.
  virtual void cancel(Request& request) noexcept = 0;
  /// Lets go of all: nothing that is under way, or queued, touches memory any more. After an error.
  virtual void abandon() noexcept {}

  /// Whether messages travel in groups: one is on its way when flush() has sent off its group, and complete
  /// when all of the group are. Both ends of a message must then be begun in groups of the same number,
  /// whatever the timing, or groups of two ranks wait for each other.
  virtual bool grouped() const { return false; }
  /// Sends off what was begun since; false where that is nothing, or the group before is still being sent
  /// off: to be called again then.
  virtual bool flush() { return false; }
  /// On a device: how many messages are complete, and not only in the order of the stream. Throws as test().
  virtual std::int64_t arrived() { return 0; }
  /// The other end of the oldest message that is not; -1 where there is none.
  virtual int behind() const { return -1; }

  /// Waits inside the library below until the oldest message sent, or the oldest received, is complete.
  /// False, at once, where the transport does not wait, or nothing is under way: ask again, with a deadline.
  virtual bool wait_for_any() { return false; }
  /// Whether a thread other than the one that made it may call, in turns.
  virtual bool threads_may_call() const { return true; }
  /// A second network between the same ranks, for another thread at the same time, say. Every rank makes its
  /// own at the same point; it dies before this one. Throws ArgumentError where there is none to be had.
  virtual std::unique_ptr<Transport> duplicate();
  /// Whether collectives may be under way on a duplicate and here at the same time, in an order that may
  /// differ between ranks.
  virtual bool duplicates_are_concurrent() const { return true; }

  /// Whether the library below has collectives of its own: Algorithm::native.
  virtual bool has_native() const { return false; }
  /// One of them; null where it has none that does what kernels::Combine promises.
  virtual std::unique_ptr<Collective> native(const NativeCall& call);

  /// What all share who communicate over this network (dist/collectives/session.h).
  Session& session() const { return *session_; }

 protected:
  Transport(int rank, int world_size, Stream stream = Stream::default_of(kCpu));
  /// Throws ArgumentError where no message can go to `peer`, or come from it.
  void check_peer(int peer) const;

 private:
  int rank_, world_size_;
  Stream stream_;
  std::unique_ptr<Session> session_;
};

}  // namespace athanor::dist
