#pragma once

#include <memory>

#include "dist/collectives/communicator.h"
#include "tensor/error.h"

namespace athanor::dist {

/// A network of its own for what forward and backward passes wait for (batch norms over all ranks, rows of
/// all ranks), since the job's has buckets of gradients under way: Transport::duplicate(). A handle, whose
/// copies are the same network.
///
/// Every rank runs the same passes, which wait for the same things in the same order: one without samples,
/// too. Whoever does not is missed by the others, who throw PeerLostError after the communicator's timeout.
/// Where two networks cannot be used at a time (NCCL before 2.26), buckets go on their way when the pass is
/// over, as with Overlap::none. Sums are made in the order of ranks, or natively where `comm` does so.
class PassNetwork {
 public:
  /// Of one rank, who waits for nobody.
  PassNetwork() = default;
  /// All ranks of `comm`, which must live longer, make theirs at the same point. Throws ArgumentError where
  /// the transport cannot be duplicated.
  PassNetwork(const Communicator& comm);

  bool alone() const { return !comm_; }
  /// Where there are several ranks. For the thread that runs the passes.
  Communicator& comm() const { return *comm_; }

  /// f(), with `op` in front of what is thrown where a rank is lost.
  template <class F> static auto named(const char* op, const F& f) {
    try {
      return f();
    } catch (const PeerLostError& error) {
      detail::fail<PeerLostError>("{}: {}", op, error.what());
    }
  }

 private:
  friend Tensor all_gather(const Tensor& t, const PassNetwork& network);
  std::shared_ptr<Communicator> comm_;  // and what it needs
};

}  // namespace athanor::dist
