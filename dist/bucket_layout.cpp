#include "dist/bucket_layout.h"

#include <algorithm>

#include "kernels/hash.h"
#include "optim/flat.h"

namespace athanor::dist {

ArenaOptions bucketed(ArenaOptions options, int world_size, const BucketOptions& buckets) {
  ATH_CHECK(buckets.bucket_bytes > 0, "buckets: bucket_bytes must be > 0, but got {}", buckets.bucket_bytes);
  options.bucket_bytes = buckets.bucket_bytes;
  options.first_bucket_bytes = buckets.first_bucket_bytes;
  options.shards = world_size;
  return options;
}

BucketLayout::BucketLayout(const ParameterArena& arena, int world_size, const CommunicatorOptions& options)
    : world_size_(world_size), options_(options), bucket_of_(static_cast<std::size_t>(arena.size()), -1) {
  for (const ParameterArena::Bucket& bucket : arena.buckets()) {
    const auto& part = arena.parts()[static_cast<std::size_t>(bucket.part)];
    const std::int64_t aligned =
        world_size * static_cast<std::int64_t>(kSliceAlignment / size_of(part.dtype));
    ATH_CHECK((bucket.end - bucket.begin) % aligned == 0,
              "buckets: the arena must be made for {} ranks, but is made for {}; see bucketed()", world_size,
              arena.options().shards);
    buckets_.push_back({bucket.part, {bucket.begin, bucket.end}, {}});
  }
  for (int i = 0; i < arena.size(); ++i) {
    const ParameterArena::Slice& slice = arena.slice(i);
    slices_.push_back(slice);
    logical_.push_back(numel_);
    numel_ += slice.count;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      Bucket& bucket = buckets_[b];
      const bool inside = slice.begin >= bucket.range.begin && slice.begin + slice.count <= bucket.range.end;
      if (bucket.part != slice.part || !inside || bucket_of_[static_cast<std::size_t>(i)] >= 0) continue;
      bucket_of_[static_cast<std::size_t>(i)] = static_cast<int>(b);
      bucket.parameters.push_back(i);
    }
  }
  hash_ = hash_of(arena);
}

Range BucketLayout::shard(int bucket, int rank) const {
  const Range& range = buckets_[static_cast<std::size_t>(bucket)].range;
  const Range piece = piece_of(options_, range.count(), world_size_, rank);
  return {range.begin + piece.begin, range.begin + piece.end};
}

std::vector<BucketLayout::Piece> BucketLayout::pieces(int rank) const {
  std::vector<Piece> all = pieces(Range{0, numel_});
  std::erase_if(all, [&](const Piece& piece) { return piece.rank != rank; });
  return all;
}

std::vector<BucketLayout::Piece> BucketLayout::pieces(const Range& logical) const {
  ATH_CHECK(logical.begin >= 0 && logical.begin <= logical.end && logical.end <= numel_,
            "buckets: elements must be among the {} of all parameters, but got [{}, {})", numel_,
            logical.begin, logical.end);
  std::vector<Piece> found;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const ParameterArena::Slice& slice = slices_[i];
    const std::int64_t first = std::max(logical.begin - logical_[i], std::int64_t{0});
    const std::int64_t last = std::min(logical.end - logical_[i], slice.count);
    if (first >= last) continue;
    const int bucket = bucket_of_[i];
    const std::size_t before = found.size();
    for (int rank = 0; rank < world_size_; ++rank) {
      const Range owned = shard(bucket, rank);
      const std::int64_t begin = std::max(first, owned.begin - slice.begin);
      const std::int64_t end = std::min(last, owned.end - slice.begin);
      if (begin >= end) continue;
      found.push_back(
          {bucket, static_cast<int>(i), rank, begin, end - begin, slice.begin + begin, logical_[i] + begin});
    }
    // Shards need not lie in the order of ranks.
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(before), found.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  }
  return found;
}

std::uint64_t BucketLayout::hash_of(const ParameterArena& arena) const {
  kernels::HashOf hash;
  hash.add(world_size_, static_cast<int>(options_.algorithm), options_.segment_bytes);
  if (options_.algorithm == Algorithm::hierarchical) hash.add(options_.node_size);
  const auto add_tensor = [&](const std::string& name, const Tensor& tensor) {
    for (const char c : name) hash.add(static_cast<unsigned char>(c));
    hash.add(name.size(), tensor.rank());
    for (int axis = 0; axis < tensor.rank(); ++axis) hash.add(tensor.shape()[axis]);
  };
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Parameter& parameter = arena.parameters()[i];
    add_tensor(parameter.name, parameter.tensor);
    hash.add(slices_[i].part, slices_[i].begin, parameter.decay);
  }
  for (const NamedTensor& buffer : arena.buffers()) add_tensor(buffer.name, buffer.tensor);
  for (const ParameterArena::Part& part : arena.parts())
    hash.add(static_cast<int>(part.dtype), static_cast<int>(part.gradients.dtype()), part.size);
  for (const Bucket& bucket : buckets_) hash.add(bucket.part, bucket.range.begin, bucket.range.end);
  return hash.value();
}

}  // namespace athanor::dist
