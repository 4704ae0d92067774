#include "dist/bucket_layout.h"

#include <algorithm>

#include "dist/collectives/exchange.h"
#include "kernels/hash.h"
#include "optim/flat.h"

namespace athanor::dist {

ArenaOptions bucketed(ArenaOptions options, int world_size, const BucketOptions& buckets) {
  ATH_CHECK(buckets.bucket_bytes > 0, "buckets: bucket_bytes must be > 0, but got {}", buckets.bucket_bytes);
  options.bucket_bytes = buckets.bucket_bytes;
  options.first_bucket_bytes = buckets.first_bucket_bytes;
  options.shards = world_size;
  options.whole_parameters = buckets.whole_parameters;
  return options;
}

BucketLayout::BucketLayout(const ArenaLayout& arena, int world_size, const CommunicatorOptions& options)
    : world_size_(world_size), options_(options), bucket_of_(arena.slices.size(), -1), slices_(arena.slices) {
  for (const ArenaRange& bucket : arena.buckets) {
    const DType dtype = arena.parts[static_cast<std::size_t>(bucket.part)].dtype;
    const std::int64_t aligned = world_size * static_cast<std::int64_t>(kSliceAlignment / size_of(dtype));
    ATH_CHECK(bucket.count() % aligned == 0,
              "buckets: the arena must be made for {} ranks, but is made for {}; see bucketed()", world_size,
              arena.shards);
    Bucket& added = buckets_.emplace_back();
    added.part = bucket.part;
    added.range = {bucket.begin, bucket.end};
    for (int rank = 0; rank < world_size; ++rank)
      added.pieces.push_back(piece_of(options, added.range.count(), world_size, rank));
  }
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const ArenaLayout::Slice& slice = slices_[i];
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      Bucket& bucket = buckets_[b];
      const bool inside = slice.begin >= bucket.range.begin && slice.begin + slice.count <= bucket.range.end;
      if (bucket.part != slice.part || !inside || bucket_of_[i] >= 0) continue;
      bucket_of_[i] = static_cast<int>(b);
      bucket.parameters.push_back(static_cast<int>(i));
    }
  }
  if (arena.whole_parameters) cut_between_parameters();
  hash_ = hash_of(arena);
}

// Each bucket first levels the ranks' loads, filling up those with the least; this gives the share of each
// rank. A parameter then goes to the rank whose share contains its midpoint.
void BucketLayout::cut_between_parameters() {
  const auto world = static_cast<std::size_t>(world_size_);
  std::vector<int> rank_at(world);  // in the order of pieces
  for (int rank = 0; rank < world_size_; ++rank)
    rank_at[static_cast<std::size_t>(piece_index(options_, world_size_, rank))] = rank;
  std::vector<std::int64_t> load(world);  // elements, by position
  for (Bucket& bucket : buckets_) {
    std::int64_t all = 0;
    for (const int i : bucket.parameters) all += slices_[static_cast<std::size_t>(i)].count;
    std::vector<std::int64_t> sorted = load;
    std::sort(sorted.begin(), sorted.end());
    std::int64_t level = 0, below = 0;
    for (std::size_t i = 0; i < world; ++i) {
      below += sorted[i];
      level = (below + all) / static_cast<std::int64_t>(i + 1);
      if (i + 1 == world || level <= sorted[i + 1]) break;
    }
    std::vector<std::int64_t> share_end(world);
    std::int64_t end = 0;
    for (std::size_t i = 0; i < world; ++i) share_end[i] = end += std::max<std::int64_t>(0, level - load[i]);
    std::vector<std::int64_t> begins(world + 1, bucket.range.count());
    begins[0] = 0;
    std::size_t place = 0;
    std::int64_t before = 0;
    for (const int i : bucket.parameters) {
      const ArenaLayout::Slice& slice = slices_[static_cast<std::size_t>(i)];
      const std::int64_t middle = before + slice.count / 2;
      while (place + 1 < world && middle >= share_end[place])
        begins[++place] = slice.begin - bucket.range.begin;
      load[place] += slice.count;
      before += slice.count;
    }
    for (std::size_t i = 0; i < world; ++i)
      bucket.pieces[static_cast<std::size_t>(rank_at[i])] = {begins[i], begins[i + 1]};
  }
}

void BucketLayout::agree(const char* who, Communicator& comm) const {
  const std::vector<std::uint64_t> hashes = gather_values(comm, hash_);
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    ATH_CHECK(hashes[rank] == hashes[0],
              "{}: all ranks must have the same parameters, precision and settings, but rank {} differs from "
              "rank 0",
              who, rank);
  }
}

Range BucketLayout::shard(int bucket, int rank) const {
  const Bucket& of = buckets_[static_cast<std::size_t>(bucket)];
  const Range& piece = of.pieces[static_cast<std::size_t>(rank)];
  return {of.range.begin + piece.begin, of.range.begin + piece.end};
}

std::vector<BucketLayout::Piece> BucketLayout::pieces() const {
  std::vector<Piece> all;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const ArenaLayout::Slice& slice = slices_[i];
    if (slice.count == 0) continue;
    const auto first = std::ssize(all);
    for (int rank = 0; rank < world_size_; ++rank) {
      const Range owned = shard(bucket_of_[i], rank);
      const std::int64_t begin = std::max(std::int64_t{0}, owned.begin - slice.begin);
      const std::int64_t end = std::min(slice.count, owned.end - slice.begin);
      if (begin < end) all.push_back({static_cast<int>(i), rank, begin, end - begin});
    }
    // Shards may have another order than ranks.
    std::sort(all.begin() + first, all.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  }
  return all;
}

std::uint64_t BucketLayout::hash_of(const ArenaLayout& arena) const {
  kernels::HashOf hash;
  hash.add(world_size_, static_cast<int>(options_.algorithm), options_.segment_bytes);
  if (options_.algorithm == Algorithm::hierarchical) hash.add(options_.node_size);
  const auto add_tensor = [&](const std::string& name, const Tensor& tensor) {
    for (const char c : name) hash.add(static_cast<unsigned char>(c));
    hash.add(name.size(), tensor.rank());
    for (int axis = 0; axis < tensor.rank(); ++axis) hash.add(tensor.shape()[axis]);
  };
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Parameter& parameter = arena.parameters[i];
    add_tensor(parameter.name, parameter.tensor);
    hash.add(slices_[i].part, slices_[i].begin, parameter.decay);
  }
  for (const NamedTensor& buffer : arena.buffers) add_tensor(buffer.name, buffer.tensor);
  for (const ArenaLayout::Part& part : arena.parts)
    hash.add(static_cast<int>(part.dtype), static_cast<int>(part.gradient_dtype), part.size);
  for (const Bucket& bucket : buckets_) {
    hash.add(bucket.part, bucket.range.begin, bucket.range.end);
    for (const Range& piece : bucket.pieces) hash.add(piece.begin, piece.end);
  }
  return hash.value();
}

}  // namespace athanor::dist
