#pragma once

#include <memory>
#include <vector>

#include "autograd/norm.h"
#include "dist/pass_network.h"
#include "nn/batch_norm.h"

namespace athanor::dist {

/// Makes the batch norms of a model normalise over the batches of all ranks, as one rank with all samples
/// would: same results, gradients and running statistics, but for the rounding of sums.
///
///     dist::SyncBatchNorm sync(model, comm);    // beside Ddp or Zero1, on every rank
///
/// Ranks may have different numbers of samples, or none; with one value over all ranks every rank throws
/// ArgumentError, as a plain batch norm does. In evaluation ranks normalise by themselves. Running statistics
/// have the same bits on all ranks if they began so.
///
/// Each norm costs one exchange in the forward pass and, where its input asks for a gradient, one in the
/// backward pass, which the pass waits for: P - 1 messages of 8 + 16 C bytes per rank. Sums are made in the
/// order of ranks, in f64. They travel on a network of their own, which says what ranks owe each other.
class SyncBatchNorm final : public JoinedBatch {
 public:
  /// Joins every nn::BatchNorm of `model`, which must live longer. With one rank, norms remain as they are.
  SyncBatchNorm(nn::Module& model, const PassNetwork& network);
  ~SyncBatchNorm() override { leave(); }
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  /// Norms are their rank's own again, as they are when this goes.
  void leave();

  /// Norms that were joined.
  int size() const { return static_cast<int>(norms_.size()); }

  /// Throws PeerLostError.
  Tensor gather(const Tensor& row) override;

 private:
  /// For rows of one length: made when the first comes, and used from then on.
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
