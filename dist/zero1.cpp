#include "dist/zero1.h"

#include <cstring>

#include "dist/slice.h"
#include "kernels/hash.h"

namespace athanor::dist {

Zero1::Zero1(ParameterArena& arena, Communicator& comm, const SyncOptions& options)
    : GradientSync("zero1", Kind::reduce_scatter, arena, comm, options) {
  std::vector<ParameterArena::Owned> owned;
  for (std::size_t b = 0; b < layout().buckets().size(); ++b) {
    const BucketLayout::Bucket& bucket = layout().buckets()[b];
    const Range shard = layout().shard(static_cast<int>(b), comm.rank());
    owned.push_back({bucket.part, shard.begin, shard.end});
    const ParameterArena::Part& part = arena.parts()[static_cast<std::size_t>(bucket.part)];
    gathers_.push_back(comm.all_gather(slice(part.weights, bucket.range)));
  }
  arena.keep_masters_of(std::move(owned));
  gathered_ = arena.updates();
}

// The first layers are in the last bucket.
void Zero1::gather_weights() {
  for (std::size_t b = gathers_.size(); b-- > 0;) comm().run(*gathers_[b], static_cast<std::int64_t>(b));
  arena().bump_weights();
  gathered_ = arena().updates();
}

void Zero1::check_weights() const {
  ATH_CHECK(
      arena().updates() == gathered_,
      "zero1: weights of all ranks must be gathered before the next step, but the optimizer has stepped "
      "since; call gather_weights() after it");
}

std::uint64_t Zero1::weights_hash() {
  std::uint64_t sum = 0, first = 0;
  for (int i = 0; i < arena().size(); ++i) {
    const ParameterArena::Slice& at = arena().slice(i);
    const Tensor& masters = arena().parts()[static_cast<std::size_t>(at.part)].masters;
    arena().for_each_owned(i, [&](std::int64_t begin, std::int64_t count, std::int64_t offset) {
      const Tensor mine = slice(masters, {offset, offset + count});
      sum += on_device(mine.device(), [&](auto& context) {
        return kernels::hash_elements(context, mine, first + static_cast<std::uint64_t>(begin));
      });
    });
    first += static_cast<std::uint64_t>(at.count);
  }
  // A sum modulo 2^64 has no order.
  Exchange sums(comm(), sizeof sum);
  std::memcpy(sums.row(comm().rank()), &sum, sizeof sum);
  sums.upload();
  sums.run();
  std::uint64_t total = 0;
  for (int rank = 0; rank < comm().world_size(); ++rank) {
    std::uint64_t part = 0;
    std::memcpy(&part, sums.row(rank), sizeof part);
    total += part;
  }
  return kernels::mix64(total + first);
}

}  // namespace athanor::dist
