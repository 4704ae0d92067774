#pragma once

#include <cstdint>
#include <functional>

#include "dist/bucket_layout.h"

namespace athanor::tool {

/// Memory of one rank for the training state, in bytes, by the allocators' names. Activations, which depend
/// on the batch, are additional.
struct RankBytes {
  std::int64_t weights = 0, gradients = 0, masters = 0, optimizer = 0, buffers = 0, comm = 0;
  std::int64_t total() const { return weights + gradients + masters + optimizer + buffers + comm; }
  bool operator==(const RankBytes&) const = default;
};

/// Number of f32 values an optimizer keeps per element of a parameter: SGD with momentum 1, Adam and AdamW 2;
/// Muon 1 for matrices, and its other optimizer's for the rest.
using StatesOf = std::function<int(const Parameter&)>;

/// For an arena made with bucketed() options. `sharded`: ZeRO-1, for the rank that needs most; else DDP. With
/// n elements including padding, w bytes per weight and g per gradient:
///
///     DDP      w n + g n + 4 n (half precisions: masters) + 4 states n
///     ZeRO-1   w n + g n + 4 n / P (half precisions)      + 4 states n / P
///
/// (approximately, for whole parameters as in Muon), and for P > 1 the scratch_bytes() of the bucket that
/// needs most: with rank_order the largest bucket, or P times the largest piece of a bucket cut between
/// parameters. Allocators round each tensor up by a few percent.
RankBytes bytes_per_rank(const ParameterArena& arena, const dist::BucketLayout& layout,
                         const StatesOf& states, bool sharded);

/// Bytes that one rank sends per step: gradients reduced and, with DDP, gathered; with ZeRO-1, weights
/// gathered. If ranks own whole parameters, the mean over ranks.
std::int64_t sent_per_step(const ParameterArena& arena, const dist::BucketLayout& layout, bool sharded);

/// Whether ZeRO-1 is worthwhile: it saves at least a tenth of the state, and at least 64 MiB. A smaller
/// saving is used up by one more image in the batch, while the gather of weights overlaps only with the
/// update.
bool zero1_pays(const RankBytes& ddp, const RankBytes& zero1);

}  // namespace athanor::tool
