#pragma once

#include <memory>

#include "dist/collectives/communicator.h"
#include "tensor/base/error.h"

namespace athanor::dist {

/// A separate network for waits inside forward and backward passes (batch norms over all ranks, rows of all
/// ranks), since the job's network has buckets of gradients in flight: Transport::duplicate(). A handle:
/// copies are the same network.
///
/// Every rank runs the same passes, which wait for the same messages in the same order, even without samples.
/// If a rank does not, the others throw PeerLostError after the communicator's timeout. If two networks
/// cannot be used concurrently (NCCL before 2.26), buckets are sent after the pass, as with Overlap::none.
/// Sums are in rank order, or native if `comm` is.
class PassNetwork {
 public:
  /// A network of one rank, without waits.
  PassNetwork() = default;
  /// All ranks of `comm`, which must live longer, must create theirs at the same point. Throws ArgumentError
  /// if the transport cannot be duplicated.
  PassNetwork(const Communicator& comm);

  bool alone() const { return !comm_; }
  /// Only with several ranks. For the thread that runs the passes.
  Communicator& comm() const { return *comm_; }

  /// Calls f(), and prefixes a PeerLostError with `op`.
  template <class F> static auto named(const char* op, const F& f) {
    try {
      return f();
    } catch (const PeerLostError& error) {
      detail::fail<PeerLostError>("{}: {}", op, error.what());
    }
  }

 private:
  friend Tensor all_gather(const Tensor& t, const PassNetwork& network);
  std::shared_ptr<Communicator> comm_;  // with its transport
};

}  // namespace athanor::dist
