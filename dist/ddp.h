#pragma once

#include "dist/gradient_sync.h"

namespace athanor::dist {

/// Distributed data parallel: gradients are summed over ranks, not averaged. For the mean over all samples,
/// pass batch_weight() to backward_scaled() (dist/gradient_sync.h).
///
/// Every rank holds the whole model and optimizer, computes on its own samples, and updates with the
/// gradients of all ranks. Weights keep the same bits on all ranks if optimizers compute the same from equal
/// gradients. Elementwise optimizers do so on any CPU; Muon's matrix products do so on CPUs of one kind with
/// equal thread counts (with Zero1, one rank updates each matrix). A Trainer compares hashes per epoch.
///
/// Each rank sends 2 n (P - 1) / P gradients per step. Source: Li et al. 2020, "PyTorch Distributed",
/// arXiv:2006.15704 (buckets, hooks, overlap).
class Ddp final : public GradientSync {
 public:
  /// For an arena made with bucketed() options. Throws as GradientSync does.
  Ddp(ParameterArena& arena, Communicator& comm, const SyncOptions& options = {})
      : GradientSync("ddp", Kind::all_reduce, arena, comm, options) {}
};

}  // namespace athanor::dist
