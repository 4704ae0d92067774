#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dist/collectives/communicator.h"
#include "dist/collectives/group.h"
#include "optim/arena.h"

// The buckets in which gradients are sent, and their owners. Fixed before training, as sums depend on it.
//
//     part of the arena  | p0 .. | p1 .......... | p2 . |  padding  | p3 ................ | padding |
//     buckets            |                 bucket 1                 |       bucket 0                |
//     shards, 2 ranks    |      rank 0         |       rank 1       |    rank 0     |    rank 1     |
//     of whole ones      | rank 0 |            rank 1              |            rank 0             |
//
// Shards are equal pieces of every bucket, at any element. With BucketOptions::whole_parameters they end at
// parameter boundaries, and every bucket compensates imbalances of the buckets before it.

namespace athanor::dist {

/// What advances the collectives of a backward pass.
enum class Overlap : std::uint8_t {
  none,    ///< nothing, before the end: for comparison
  pumped,  ///< the pass itself, at each complete gradient; for transports without threads
  thread,  ///< a separate thread
};

struct BucketOptions {
  /// Maximum bytes of gradients sent together, unless a single parameter is larger.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// The first bucket to complete, sent while nothing else is: small, to begin early.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  /// Shards of whole parameters: for Muon.
  bool whole_parameters = false;
};

/// Options for an arena whose buckets are divided among `world_size` ranks.
ArenaOptions bucketed(ArenaOptions options, int world_size, const BucketOptions& buckets = {});

/// Which bucket each parameter's gradient belongs to, and which rank owns which piece of each bucket.
class BucketLayout {
 public:
  struct Bucket {
    int part = 0;                 ///< index in the arena
    Range range;                  ///< elements of that part; a multiple of 128 bytes per rank
    std::vector<int> parameters;  ///< indices in the arena, in declared order
    std::vector<Range> pieces;    ///< by rank, elements relative to the bucket's first
  };

  /// Elements of one parameter that one rank owns, beginning at its element `begin`.
  struct Piece {
    int parameter = 0, rank = 0;
    std::int64_t begin = 0, count = 0;
  };

  /// Throws ArgumentError if the arena's buckets do not fit this number of ranks.
  BucketLayout(const ArenaLayout& arena, int world_size, const CommunicatorOptions& options = {});
  BucketLayout(const ParameterArena& arena, int world_size, const CommunicatorOptions& options = {})
      : BucketLayout(arena.layout(), world_size, options) {}

  int world_size() const { return world_size_; }
  const CommunicatorOptions& options() const { return options_; }
  /// In sending order.
  std::span<const Bucket> buckets() const { return buckets_; }
  /// -1: an empty parameter, which has no bucket.
  int bucket_of(int parameter) const { return bucket_of_[static_cast<std::size_t>(parameter)]; }

  /// The range of a bucket's part that `rank` owns, including padding. Equal sizes for all ranks, unless they
  /// own whole parameters.
  Range shard(int bucket, int rank) const;

  /// The owners of all elements without padding: by parameter, in element order.
  std::vector<Piece> pieces() const;

  /// Hash of names, shapes, dtypes, buckets, ranks and algorithm: equal on ranks that match.
  std::uint64_t hash() const { return hash_; }
  /// Compares the hash over all ranks. Throws ArgumentError, in the name of `who`, naming a rank with another
  /// layout; PeerLostError.
  void agree(const char* who, Communicator& comm) const;

 private:
  std::uint64_t hash_of(const ArenaLayout& arena) const;
  void cut_between_parameters();

  int world_size_;
  CommunicatorOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;
  std::vector<ArenaLayout::Slice> slices_;
  std::uint64_t hash_ = 0;
};

}  // namespace athanor::dist
