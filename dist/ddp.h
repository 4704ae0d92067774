#pragma once

#include "dist/gradient_sync.h"

namespace athanor::dist {

/// Distributed data parallel: the gradients of all ranks are summed, not averaged. For the mean over all
/// samples, give backward_scaled() the weight that batch_weight() says (dist/gradient_sync.h).
///
/// Every rank holds all of the model and its optimizer, computes on samples of its own, and updates with the
/// gradients of all. Weights keep the same bits on all ranks, as long as optimizers compute the same from the
/// same gradients: those that treat elements alike do, on any CPU; Muon's products of matrices on CPUs of one
/// kind with as many threads (with Zero1, each is updated on one rank). A Trainer compares hashes per epoch.
///
/// Per rank and step, 2 n (P - 1) / P gradients are sent. Source: Li et al. 2020, "PyTorch Distributed",
/// arXiv:2006.15704 (buckets, hooks, overlap).
class Ddp final : public GradientSync {
 public:
  /// For an arena made with bucketed() options. Throws as GradientSync does.
  Ddp(ParameterArena& arena, Communicator& comm, const SyncOptions& options = {})
      : GradientSync("ddp", Kind::all_reduce, arena, comm, options) {}
};

}  // namespace athanor::dist
