#pragma once

#include <cstdint>

#include "dist/bucket_layout.h"

namespace athanor::dist {

/// What the state of training takes in the memory of one rank, in bytes, by the names allocators give it.
/// Activations, which depend on the batch, come on top.
struct RankBytes {
  std::int64_t weights = 0, gradients = 0, masters = 0, optimizer = 0, buffers = 0, comm = 0;
  std::int64_t total() const { return weights + gradients + masters + optimizer + buffers + comm; }
  bool operator==(const RankBytes&) const = default;
};

/// Of an arena made with bucketed() options, whose optimizer keeps `states` f32 values per element (SGD with
/// momentum 1, Adam and AdamW 2). `sharded`: ZeRO-1, the most that any rank takes; else DDP. With n elements
/// and their padding, w bytes a weight and g a gradient:
///
///     DDP      w n + g n + 4 n (half precisions: masters) + 4 states n
///     ZeRO-1   w n + g n + 4 n / P (half precisions)      + 4 states n / P
///
/// and the largest bucket for what arrives, where P > 1. Allocators round each tensor up by a few percent.
RankBytes bytes_per_rank(const ParameterArena& arena, const BucketLayout& layout, int states, bool sharded);

/// What one rank sends in a step: gradients reduced and, with DDP, gathered; with ZeRO-1, weights gathered.
std::int64_t sent_per_step(const ParameterArena& arena, const BucketLayout& layout, bool sharded);

/// Whether ZeRO-1 is worth it: it spares a tenth of the state or more, and 64 MiB or more. What it spares
/// otherwise, one more image in the batch takes; and gathering weights can hide behind nothing but the
/// update.
bool zero1_pays(const RankBytes& ddp, const RankBytes& zero1);

}  // namespace athanor::dist
