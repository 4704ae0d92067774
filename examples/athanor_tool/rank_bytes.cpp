#include "examples/athanor_tool/rank_bytes.h"

#include <algorithm>
#include <vector>

#include "dist/collectives/slice.h"
#include "optim/flat.h"

namespace athanor::tool {
namespace {

std::int64_t size_in(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

RankBytes bytes_per_rank(const ParameterArena& arena, const dist::BucketLayout& layout,
                         const StatesOf& states, bool sharded) {
  constexpr std::int64_t kF32 = 4;
  constexpr auto kAligned = static_cast<std::int64_t>(kSliceAlignment / kF32);
  const int ranks = layout.world_size();
  RankBytes bytes;
  // For every rank, if sharded; for rank 0 in DDP.
  std::vector<std::int64_t> masters(static_cast<std::size_t>(sharded ? ranks : 1)), optimizer(masters.size());
  const auto add_state = [&](int rank, int parameter, std::int64_t elements) {
    optimizer[static_cast<std::size_t>(rank)] +=
        states(arena.parameters()[static_cast<std::size_t>(parameter)]) * kF32 *
        align_elements(elements, kAligned);
  };
  for (const ParameterArena::Part& part : arena.parts()) {
    bytes.weights += part.size * size_in(part.dtype);
    bytes.gradients += part.size * size_in(part.gradients.dtype());
    if (!sharded && part.dtype != DType::f32) masters[0] += part.size * kF32;
  }
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const dist::BucketLayout::Bucket& bucket = layout.buckets()[b];
    const ParameterArena::Part& part = arena.parts()[static_cast<std::size_t>(bucket.part)];
    if (sharded && part.dtype != DType::f32) {
      for (int rank = 0; rank < ranks; ++rank)
        masters[static_cast<std::size_t>(rank)] += layout.shard(static_cast<int>(b), rank).count() * kF32;
    }
    if (ranks > 1)
      bytes.comm = std::max(
          bytes.comm,
          dist::scratch_bytes(layout.options(), dist::slice(part.gradients, bucket.range), bucket.pieces));
  }
  if (sharded) {
    for (const dist::BucketLayout::Piece& piece : layout.pieces())
      add_state(piece.rank, piece.parameter, piece.count);
  } else {
    for (int i = 0; i < arena.size(); ++i) add_state(0, i, arena.slice(i).count);
  }
  for (std::size_t rank = 0; rank < masters.size(); ++rank) {
    if (masters[rank] + optimizer[rank] < bytes.masters + bytes.optimizer) continue;
    bytes.masters = masters[rank];
    bytes.optimizer = optimizer[rank];
  }
  if (arena.buffers().flat().defined())
    bytes.buffers = 2 * static_cast<std::int64_t>(arena.buffers().flat().bytes());  // and a snapshot
  return bytes;
}

std::int64_t sent_per_step(const ParameterArena& arena, const dist::BucketLayout& layout, bool sharded) {
  const std::int64_t ranks = layout.world_size();
  std::int64_t sent = 0;
  for (const dist::BucketLayout::Bucket& bucket : layout.buckets()) {
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

}  // namespace athanor::tool
