#pragma once

#include <cstdint>
#include <functional>

#include "dist/bucket_layout.h"

namespace athanor::tool {

/// What the state of training takes in the memory of one rank, in bytes, by the names allocators give it.
/// Activations, which depend on the batch, come on top.
struct RankBytes {
  std::int64_t weights = 0, gradients = 0, masters = 0, optimizer = 0, buffers = 0, comm = 0;
  std::int64_t total() const { return weights + gradients + masters + optimizer + buffers + comm; }
  bool operator==(const RankBytes&) const = default;
};

/// How many f32 values an optimizer keeps per element of a parameter: SGD with momentum 1, Adam and AdamW 2;
/// Muon 1 for matrices, and its other optimizer's for the rest.
using StatesOf = std::function<int(const Parameter&)>;

/// Of an arena made with bucketed() options. `sharded`: ZeRO-1, of the rank that takes most; else DDP. With n
/// elements and their padding, w bytes a weight and g a gradient:
///
///     DDP      w n + g n + 4 n (half precisions: masters) + 4 states n
///     ZeRO-1   w n + g n + 4 n / P (half precisions)      + 4 states n / P
///
/// (whole parameters, as Muon needs them, divide only about so), and, where P > 1, scratch_bytes() of the
/// bucket that needs most: with rank_order, the largest bucket, or P times the largest piece of one that is
/// cut between parameters. Allocators round each tensor up by a few percent.
RankBytes bytes_per_rank(const ParameterArena& arena, const dist::BucketLayout& layout,
                         const StatesOf& states, bool sharded);

/// What one rank sends in a step: gradients reduced and, with DDP, gathered; with ZeRO-1, weights gathered.
/// Where ranks own whole parameters, the mean over ranks.
std::int64_t sent_per_step(const ParameterArena& arena, const dist::BucketLayout& layout, bool sharded);

/// Whether ZeRO-1 is worth it: it spares a tenth of the state or more, and 64 MiB or more. What it spares
/// otherwise, one more image in the batch takes; and gathering weights can hide behind nothing but the
/// update.
bool zero1_pays(const RankBytes& ddp, const RankBytes& zero1);

}  // namespace athanor::tool
