#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include "dist/collectives/native.h"
#include "dist/transports/transport.h"

namespace athanor::dist {

struct NcclCall;

/// A job's unique NCCL id: created by one rank and distributed before there is a network.
using NcclId = std::array<std::byte, 128>;

/// Throws BackendError if NCCL cannot open a socket; needs no GPU.
NcclId new_nccl_id();

struct NcclOptions {
  Device device{DeviceType::cuda, 0};  ///< this rank's own device
  /// Maximum wait for the ranks: the job's --dist-timeout. Must be set.
  std::chrono::milliseconds timeout{0};
};

/// Ranks with a GPU each, over NCCL's grouped sends and receives, or its own collectives; in the target
/// athanor_nccl, if the build found NCCL, or with the emulator, whose ranks are threads.
///
/// Messages started between two flush() calls form one group, which is one piece of work on stream(). NCCL
/// keeps some megabytes of GPU memory per pair of ranks with messages, so only pairs that the algorithm needs
/// exchange any, and native ones none. It has no tags: messages of a pair arrive in order.
///
/// NCCL itself never waits here (blocking = 0): communicators and groups in progress are polled. An NCCL
/// error is a PeerLostError if another process has ended or if, once all have joined, a system call has
/// failed, which indicates a lost link; else a BackendError. Our own deadlines (dist/collectives/wait.h)
/// detect a silent rank. After an error, or if destroyed with messages in flight, a separate thread aborts
/// the communicator; after 5 s it is abandoned, as NCCL's abort may hang.
class NcclTransport final : public Transport {
 public:
  /// Joins the ranks with the same id; returns when all have joined. Throws PeerLostError if one does not;
  /// BackendError if the GPU does not exist, or with NCCL's text, for example on two ranks on one GPU.
  NcclTransport(const NcclId& id, int rank, int world_size, const NcclOptions& options = {});
  ~NcclTransport() override;

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override;
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override;
  bool test(Request& request) override;
  void cancel(Request& request) noexcept override;
  bool grouped() const override { return true; }
  bool flush() override;
  std::int64_t arrived() override;
  int behind() const override;
  /// A second communicator, whose id is sent over this one, which must have nothing in flight; waits and
  /// throws as the constructor does. Both must fit on the GPU together: at most 32 blocks each.
  std::unique_ptr<Transport> duplicate() override;
  /// True from NCCL 2.26 on.
  bool duplicates_are_concurrent() const override;
  /// ncclAllReduce, ncclReduceScatter, ncclAllGather and ncclBroadcast. NCCL chooses the order of sums, which
  /// may depend on the size, and rounds halves at every step. Maxima of floating values are not supported.
  bool has_native() const override { return true; }
  std::unique_ptr<Collective> native(const NativeCall& call) override;
  void abandon() noexcept override;

  /// Number of ranks with which this one has exchanged messages, or tried to: NCCL keeps memory for each.
  int connected() const;

 private:
  struct Impl;
  Request post(const NcclCall& call);
  Request post_message(NcclCall call);
  void check_alive() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::dist
