#include "dist/predict.h"

#include <algorithm>

namespace athanor::dist {
namespace {

std::int64_t size_in(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

RankBytes bytes_per_rank(const ParameterArena& arena, const BucketLayout& layout, int states, bool sharded) {
  constexpr std::int64_t kF32 = 4;
  RankBytes bytes;
  for (const ParameterArena::Part& part : arena.parts()) {
    bytes.weights += part.size * size_in(part.dtype);
    bytes.gradients += part.size * size_in(part.gradients.dtype());
    if (sharded) continue;
    if (part.dtype != DType::f32) bytes.masters += part.size * kF32;
    bytes.optimizer += part.size * kF32 * states;
  }
  const int ranks = layout.world_size();
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const BucketLayout::Bucket& bucket = layout.buckets()[b];
    const ParameterArena::Part& part = arena.parts()[static_cast<std::size_t>(bucket.part)];
    if (sharded) {
      const std::int64_t mine = layout.shard(static_cast<int>(b), 0).count();
      if (part.dtype != DType::f32) bytes.masters += mine * kF32;
      bytes.optimizer += mine * kF32 * states;
    }
    if (ranks > 1) bytes.comm = std::max(bytes.comm, bucket.range.count() * size_in(part.gradients.dtype()));
  }
  if (arena.flat_buffers().defined())
    bytes.buffers = 2 * static_cast<std::int64_t>(arena.flat_buffers().bytes());  // and a snapshot
  return bytes;
}

std::int64_t sent_per_step(const ParameterArena& arena, const BucketLayout& layout, bool sharded) {
  const std::int64_t ranks = layout.world_size();
  std::int64_t sent = 0;
  for (const BucketLayout::Bucket& bucket : layout.buckets()) {
    const ParameterArena::Part& part = arena.parts()[static_cast<std::size_t>(bucket.part)];
    const std::int64_t gradients = size_in(part.gradients.dtype());
    const std::int64_t back = sharded ? size_in(part.dtype) : gradients;
    sent += bucket.range.count() / ranks * (ranks - 1) * (gradients + back);
  }
  return sent;
}

bool zero1_pays(const RankBytes& ddp, const RankBytes& zero1) {
  const std::int64_t spared = ddp.total() - zero1.total();
  return spared >= (std::int64_t{64} << 20) && 10 * spared >= ddp.total();
}

}  // namespace athanor::dist
