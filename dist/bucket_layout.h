#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dist/collectives/communicator.h"
#include "dist/collectives/group.h"
#include "optim/arena.h"

// Where gradients travel and who owns what. Fixed when training begins, for the bits of sums depend on it.
//
//     part of the arena  | p0 .. | p1 .......... | p2 . |  padding  | p3 ................ | padding |
//     buckets            |                 bucket 1                 |       bucket 0                |
//     shards, 2 ranks    |      rank 0         |       rank 1       |    rank 0     |    rank 1     |
//     of whole ones      | rank 0 |            rank 1              |            rank 0             |
//
// Shards are equal pieces of every bucket, which end where they end. With BucketOptions::whole_parameters
// they end where parameters end, and every bucket evens out what ranks have of the buckets before it.

namespace athanor::dist {

struct BucketOptions {
  /// Gradients of at most so many bytes travel together, or one parameter that is larger.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// The bucket that is complete first, and sent while nothing else is: small, to begin early.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  /// Shards of whole parameters: for Muon.
  bool whole_parameters = false;
};

/// Options for an arena whose buckets `world_size` ranks share.
ArenaOptions bucketed(ArenaOptions options, int world_size, const BucketOptions& buckets = {});

class BucketLayout {
 public:
  struct Bucket {
    int part = 0;                 ///< of the arena
    Range range;                  ///< elements of that part; a multiple of 128 bytes per rank
    std::vector<int> parameters;  ///< of the arena, in declared order
    std::vector<Range> pieces;    ///< by rank, elements from the bucket's first one on
  };

  /// Elements of one parameter that one rank owns, from its element `begin` on.
  struct Piece {
    int parameter = 0, rank = 0;
    std::int64_t begin = 0, count = 0;
  };

  /// Throws ArgumentError where the arena's buckets are not made for so many ranks.
  BucketLayout(const ParameterArena& arena, int world_size, const CommunicatorOptions& options = {});

  int world_size() const { return world_size_; }
  const CommunicatorOptions& options() const { return options_; }
  /// In the order in which they are sent.
  std::span<const Bucket> buckets() const { return buckets_; }
  /// -1: an empty parameter that no bucket is made for.
  int bucket_of(int parameter) const { return bucket_of_[static_cast<std::size_t>(parameter)]; }

  /// What `rank` owns of a bucket: elements of its part, padding included. The same number for all ranks,
  /// unless they own whole parameters.
  Range shard(int bucket, int rank) const;

  /// Who owns what, padding left out: by parameter, in the order of elements.
  std::vector<Piece> pieces() const;

  /// Of names, shapes, dtypes, buckets, ranks and the algorithm: equal where ranks fit together.
  std::uint64_t hash() const { return hash_; }
  /// Compares it with that of all ranks. Throws ArgumentError naming a rank that has another layout, in the
  /// name of `who`; PeerLostError.
  void agree(const char* who, Communicator& comm) const;

 private:
  std::uint64_t hash_of(const ParameterArena& arena) const;
  void cut_between_parameters();

  int world_size_;
  CommunicatorOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;
  std::vector<ParameterArena::Slice> slices_;
  std::uint64_t hash_ = 0;
};

}  // namespace athanor::dist
