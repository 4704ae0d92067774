#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include "dist/collectives/native.h"
#include "dist/transports/transport.h"

namespace athanor::dist {

struct NcclCall;

/// NCCL's unique id of a job: made by one rank and handed round before there is a network.
using NcclId = std::array<std::byte, 128>;

/// Throws BackendError where NCCL cannot open a socket; needs no GPU.
NcclId new_nccl_id();

struct NcclOptions {
  Device device{DeviceType::cuda, 0};  ///< this rank's; of this rank alone
  /// How long the ranks have to come: the job's, as --dist-timeout has it. To be given.
  std::chrono::milliseconds timeout{0};
};

/// Ranks with a GPU each, over NCCL's grouped sends and receives, or its own collectives; in the target
/// athanor_nccl, where the build found NCCL, or with the emulator, whose ranks are threads.
///
/// Messages begun between two flush() go out as one group, which is one piece of work on stream(). NCCL keeps
/// some megabytes of the GPU for each two ranks that have exchanged a message: so only those do that the
/// algorithm needs, and none for native. It knows no tags: messages between two ranks arrive in order.
///
/// NCCL itself never waits here (blocking = 0): a communicator or group under way is asked after. An error of
/// NCCL's is a PeerLostError where another process has ended or, once all have come, a call to the system has
/// failed, which is how a lost link shows; else a BackendError. A silent rank is noticed by our own deadlines
/// (dist/collectives/wait.h). After an error, or where this dies with messages under way, a thread of its own
/// aborts the communicator, and is left to itself after 5 s: NCCL's abort may hang.
class NcclTransport final : public Transport {
 public:
  /// Joins the ranks with the same id; returns when all have come. Throws PeerLostError where one does not;
  /// BackendError where there is no such GPU, or with what NCCL says: two ranks on one GPU, say.
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
  /// A second communicator, whose id goes over this one, on which nothing may be under way; waits and throws
  /// as the constructor does. Both need room on the GPU at the same time: at most 32 blocks each.
  std::unique_ptr<Transport> duplicate() override;
  /// From 2.26 on.
  bool duplicates_are_concurrent() const override;
  /// ncclAllReduce, ncclReduceScatter, ncclAllGather and ncclBroadcast. Sums go in an order of NCCL's own,
  /// which may depend on the size, halves rounded at every step. Maxima of floating values it has not.
  bool has_native() const override { return true; }
  std::unique_ptr<Collective> native(const NativeCall& call) override;
  void abandon() noexcept override;

  /// Ranks that this one has exchanged messages with, or tried to: NCCL keeps memory for each.
  int connected() const;

 private:
  struct Impl;
  Request post(const NcclCall& call);
  Request post_message(NcclCall call);
  void check_alive() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::dist
