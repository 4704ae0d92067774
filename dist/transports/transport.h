#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/stream.h"

// The network below the collectives: messages of bytes between the ranks of a job. Whatever it is (threads of
// one process, shared memory, MPI, NCCL), nothing here blocks; dist/collectives/wait.h waits, with a
// deadline.

namespace athanor::dist {

class Collective;
struct NativeCall;
class Session;

/// Distinguishes collectives in flight. Messages between two ranks with the same tag arrive in sending order.
using Tag = std::int32_t;
inline constexpr Tag kTags = 32768;  ///< tags are in [0, kTags): MPI guarantees no more

/// A message in flight, of the transport that created it.
struct Request {
  std::int32_t slot = -1;
  bool pending() const { return slot >= 0; }
};

/// One rank's access to the network. Messages are in host memory or on a GPU, where collectives queue all
/// work on one stream (dist/collectives/on_stream.h). Used by one thread at a time. Allocates nothing after
/// the first few messages. Throws PeerLostError if a rank is known to be lost; BackendError.
class Transport {
 public:
  virtual ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  /// The device of the messages' memory.
  Device device() const { return stream_.device(); }
  /// That device's queue for collectives; on the CPU, all work is done when a call returns.
  const Stream& stream() const { return stream_; }

  /// Starts to send; `bytes` must not change until test() returns true.
  virtual Request isend(int to, Tag tag, std::span<const std::byte> bytes) = 0;
  /// Starts to receive a message of exactly that many bytes.
  virtual Request irecv(int from, Tag tag, std::span<std::byte> bytes) = 0;
  /// Whether a message is complete: on a device, for work queued on stream() from now on. If so, resets the
  /// request. Never blocks.
  virtual bool test(Request& request) = 0;
  /// Gives up a message that may never complete: its memory is not touched again. For cleanup.
  virtual void cancel(Request& request) noexcept = 0;
  /// Gives up all messages: nothing in flight or queued touches memory any more. After an error.
  virtual void abandon() noexcept {}

  /// Whether messages are sent in groups: a message starts when flush() has sent its group, and completes
  /// with the whole group. Both ends of a message must then be in groups of the same number, whatever the
  /// timing, or two ranks' groups wait for each other.
  virtual bool grouped() const { return false; }
  /// Sends the messages started since the last call. False if there are none or the previous group is still
  /// being sent: then call again.
  virtual bool flush() { return false; }
  /// On a device: number of messages actually complete, not just queued on the stream. Throws as test().
  virtual std::int64_t arrived() { return 0; }
  /// The other end of the oldest incomplete message; -1 if there is none.
  virtual int behind() const { return -1; }

  /// Waits inside the library until the oldest message sent, or the oldest received, is complete. Returns
  /// false at once if the transport does not wait, or nothing is in flight: then poll, with a deadline.
  virtual bool wait_for_any() { return false; }
  /// Whether other threads than its creator may call it, one at a time.
  virtual bool threads_may_call() const { return true; }
  /// A second network between the same ranks, for example for another thread. Every rank must create its own
  /// at the same point, and destroy it before this one. Throws ArgumentError if not available.
  virtual std::unique_ptr<Transport> duplicate();
  /// Whether collectives may be in flight on a duplicate and here at the same time, in an order that may
  /// differ between ranks.
  virtual bool duplicates_are_concurrent() const { return true; }

  /// Whether the library has its own collectives: Algorithm::native.
  virtual bool has_native() const { return false; }
  /// A native collective; null if none satisfies kernels::Combine.
  virtual std::unique_ptr<Collective> native(const NativeCall& call);

  /// Why the ranks cannot continue: "rank 2 was killed by signal 9". Empty while no rank is known to be lost.
  /// From any thread.
  virtual std::string lost() const { return {}; }

  /// The state shared by all users of this network (dist/collectives/session.h).
  Session& session() const { return *session_; }

 protected:
  Transport(int rank, int world_size, Stream stream = Stream::default_of(kCpu));
  /// Throws ArgumentError if no message can be exchanged with `peer`.
  void check_peer(int peer) const;

 private:
  int rank_, world_size_;
  Stream stream_;
  std::unique_ptr<Session> session_;
};

}  // namespace athanor::dist
