#pragma once  // Explained in docs/why_not_data_parallel.md.

#include <memory>
#include <vector>

#include "autograd/norm.h"
#include "dist/pass_network.h"
#include "nn/batch_norm.h"

namespace athanor::dist {

/// Makes the batch norms of a model normalise over the batches of all ranks, as a single rank with all
/// samples would: same results, gradients and running statistics, up to the rounding of sums.
///
///     dist::SyncBatchNorm sync(model, comm);    // beside Ddp or Zero1, on every rank
///
/// Ranks may have different numbers of samples, or none; with one value over all ranks every rank throws
/// ArgumentError, as a plain batch norm does. In evaluation each rank normalises alone. Running statistics
/// keep the same bits on all ranks if they start equal.
///
/// Each norm costs one exchange in the forward pass and, if its input needs a gradient, one in the backward
/// pass. The pass waits for it: P - 1 messages of 8 + 16 C bytes per rank. Sums are in rank order, in f64.
/// They use a separate network with its own flight record.
class SyncBatchNorm final : public JoinedBatch {
 public:
  /// Joins every nn::BatchNorm of `model`, which must live longer. With one rank, norms are unchanged.
  SyncBatchNorm(nn::Module& model, const PassNetwork& network);
  ~SyncBatchNorm() override { leave(); }
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  /// Restores the plain norms, as the destructor does.
  void leave();

  /// Number of joined norms.
  int size() const { return static_cast<int>(norms_.size()); }

  /// Throws PeerLostError.
  Tensor gather(const Tensor& row) override;

 private:
  /// For rows of one length: created on first use, then reused.
  struct Exchange {
    Tensor rows;  // [P, n]
    std::unique_ptr<Collective> gather;
  };
  Exchange& exchange_of(const Tensor& row);

  PassNetwork network_;
  std::vector<nn::BatchNorm*> norms_;
  std::vector<Exchange> exchanges_;
};

}  // namespace athanor::dist
