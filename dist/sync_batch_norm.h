#pragma once

#include <memory>
#include <vector>

#include "autograd/norm.h"
#include "dist/collectives/communicator.h"
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
/// order of ranks, in f64. They travel on a network of their own (Transport::duplicate), since the job's has
/// buckets of gradients under way. Where both cannot be used at a time (NCCL before 2.26), buckets go on
/// their way when the pass is over, as with Overlap::none.
///
/// Every rank runs the same passes: one without samples, too, must run its forward and backward pass. Whoever
/// does not is missed by the others, who throw PeerLostError after the communicator's timeout.
class SyncBatchNorm final : public JoinedBatch {
 public:
  /// Joins every nn::BatchNorm of `model`, which must live longer. All ranks of `comm` make theirs at the
  /// same point. With one rank, norms remain as they are.
  SyncBatchNorm(nn::Module& model, const Communicator& comm);
  ~SyncBatchNorm() override;
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

  Session* session_ = nullptr;          // the job's, where buckets have to wait
  std::unique_ptr<Transport> network_;  // null for one rank
  std::unique_ptr<Communicator> comm_;
  std::vector<nn::BatchNorm*> norms_;
  std::vector<Exchange> exchanges_;
};

}  // namespace athanor::dist
