#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/gradient_sync.h"

namespace athanor::dist {

/// ZeRO stage 1: every rank holds all weights in compute precision, but masters and optimizer state of its
/// shard alone, an equal piece of every bucket. Gradients are reduced to their owners, who update, and the
/// new weights are gathered: as many bytes as DDP sends, and the same bits.
///
/// Bytes per rank with n parameters (N with padding, N - n < buckets P align), 16-bit weights and AdamW:
/// 2 N weights + g N gradients + 12 N / P, where DDP takes 2 N + g N + 12 N. With f32 weights, which are
/// their own masters, 4 N + 4 N + 8 N / P.
///
///     zero1.reduce(step, limits);
///     optimizer.step(step);
///     finish_step(step);
///     zero1.gather_weights();           // or the next step throws ArgumentError
///
/// Only for optimizers that treat elements alike (SGD, Adam, AdamW); Muon and Ema refuse a sharded arena. A
/// parameter may straddle shards. Source: Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, section 5.1.
class Zero1 final : public GradientSync {
 public:
  /// Shards `arena`, made with bucketed() options. Make the optimizer after it. Throws as GradientSync does.
  Zero1(ParameterArena& arena, Communicator& comm, const SyncOptions& options = {});

  /// To be called after the optimizer's step: every rank's new weights to all, in the order in which the next
  /// forward pass reads them. Throws PeerLostError.
  void gather_weights();

  /// ParameterArena::weights_hash() of the masters of all ranks; the same value as an unsharded arena with
  /// those masters gives. All ranks must call it.
  std::uint64_t weights_hash();

 private:
  void check_weights() const override;

  std::vector<std::unique_ptr<Collective>> gathers_;  // by bucket
  std::int64_t gathered_ = 0;                         // ParameterArena::updates() that all ranks have
};

}  // namespace athanor::dist
