#include "dist/bucket_layout.h"

#include <limits>

#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "dist/collectives/slice.h"
#include "tests/support/cases.h"

namespace athanor::bucket_layout_test {

using dist::Algorithm;
using dist::bucketed;
using dist::BucketLayout;
using dist::BucketOptions;
using dist::CommunicatorOptions;
using dist::Range;

constexpr std::int64_t kSizes[] = {1, 700, 33, 5000, 2, 129, 64, 7};
constexpr BucketOptions kBuckets{.bucket_bytes = 4000, .first_bucket_bytes = 600};

std::vector<Parameter> odd_parameters() {
  std::vector<Parameter> parameters;
  for (const std::int64_t size : kSizes) {
    const Tensor tensor = Tensor::zeros({size});
    require_grad(tensor);
    const std::string name = fmt::format("p{}", parameters.size());
    parameters.push_back({name, tensor, size == 33});
  }
  return parameters;
}

ParameterArena make_arena(int world, Precision precision, bool f32_gradients = false) {
  return ParameterArena(odd_parameters(), {},
                        bucketed({.precision = precision, .f32_gradients = f32_gradients}, world, kBuckets));
}

std::vector<CommunicatorOptions> algorithms(int world) {
  std::vector<CommunicatorOptions> all{{.algorithm = Algorithm::ring}, {.algorithm = Algorithm::rank_order}};
  for (int size = 2; size < world; ++size) {
    if (world % size == 0) all.push_back({.algorithm = Algorithm::hierarchical, .node_size = size});
  }
  return all;
}

// Calls f(arena, layout) for every world, precision and algorithm.
template <class F> void for_each_layout(const F& f) {
  for (const int world : {1, 2, 3, 4, 5, 6, 8, 16}) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const ParameterArena arena = make_arena(world, precision);
      for (const CommunicatorOptions& options : algorithms(world)) {
        SCOPED_TRACE(
            fmt::format("{} ranks, {}, nodes of {}", world, name_of(options.algorithm), options.node_size));
        f(arena, BucketLayout(arena, world, options));
      }
    }
  }
}

TEST(BucketLayout, BucketsGoBackwardsWithinTheirCaps) {
  const ParameterArena arena = make_arena(3, Precision::f32);
  const BucketLayout layout(arena, 3);
  // From the back: 7 + 64 = 284 bytes, and 129 would be too many for the first; 129 + 2 = 524, and 5000 are
  // more than there may be in any, so they travel alone; 33 + 700 + 1 = 2936.
  ASSERT_EQ(layout.buckets().size(), 4u);
  EXPECT_EQ(layout.buckets()[0].parameters, (std::vector<int>{6, 7}));
  EXPECT_EQ(layout.buckets()[1].parameters, (std::vector<int>{4, 5}));
  EXPECT_EQ(layout.buckets()[2].parameters, (std::vector<int>{3}));
  EXPECT_EQ(layout.buckets()[3].parameters, (std::vector<int>{0, 1, 2}));
}

TEST(BucketLayout, CapsAreOfGradients) {
  const auto buckets = [](bool f32_gradients) {
    const ParameterArena arena(odd_parameters(), {},
                               bucketed({.precision = Precision::bf16, .f32_gradients = f32_gradients}, 2,
                                        {.bucket_bytes = 4000, .first_bucket_bytes = 0}));
    return BucketLayout(arena, 2).buckets().size();
  };
  // As bf16, 5000 values are 10,000 bytes; the f32 norm is a part of its own.
  EXPECT_EQ(buckets(false), 4u);
  EXPECT_EQ(buckets(true), 4u);
  const ParameterArena arena(
      odd_parameters(), {},
      bucketed({.precision = Precision::bf16}, 2, {.bucket_bytes = 1402, .first_bucket_bytes = 0}));
  EXPECT_EQ(BucketLayout(arena, 2).buckets().size(), 4u);  // 700 + 1 values fit as bf16,
  const ParameterArena wide(odd_parameters(), {},
                            bucketed({.precision = Precision::bf16, .f32_gradients = true}, 2,
                                     {.bucket_bytes = 1402, .first_bucket_bytes = 0}));
  EXPECT_EQ(BucketLayout(wide, 2).buckets().size(), 5u);  // but not as f32
}

TEST(BucketLayout, ShardsAreEqualAlignedAndCoverEachBucketOnce) {
  for_each_layout([](const ParameterArena& arena, const BucketLayout& layout) {
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      const BucketLayout::Bucket& bucket = layout.buckets()[b];
      const auto element =
          static_cast<std::int64_t>(size_of(arena.parts()[static_cast<std::size_t>(bucket.part)].dtype));
      std::vector<int> owners(static_cast<std::size_t>(bucket.range.count()));
      for (int rank = 0; rank < layout.world_size(); ++rank) {
        const Range shard = layout.shard(static_cast<int>(b), rank);
        EXPECT_EQ(shard.count() * layout.world_size(), bucket.range.count());
        EXPECT_EQ(shard.begin * element % 128, 0);
        for (std::int64_t i = shard.begin; i < shard.end; ++i)
          ++owners[static_cast<std::size_t>(i - bucket.range.begin)];
      }
      for (const int count : owners) ASSERT_EQ(count, 1);
    }
  });
}

TEST(BucketLayout, PaddingIsLessThanOneAlignedShardPerRankAndSlice) {
  for_each_layout([](const ParameterArena& arena, const BucketLayout& layout) {
    for (const BucketLayout::Bucket& bucket : layout.buckets()) {
      const auto align = static_cast<std::int64_t>(
          128 / size_of(arena.parts()[static_cast<std::size_t>(bucket.part)].dtype));
      std::int64_t used = 0;
      for (const int parameter : bucket.parameters)
        used += (arena.slice(parameter).count + align - 1) / align * align;
      EXPECT_LT(bucket.range.count() - used, layout.world_size() * align);
    }
  });
}

TEST(BucketLayout, PiecesOfAllRanksAreEveryElementOnceWithoutPadding) {
  for_each_layout([](const ParameterArena& arena, const BucketLayout& layout) {
    int parameter = 0;
    std::int64_t at = 0, all = 0;  // within the parameter, and of all
    for (const BucketLayout::Piece& piece : layout.pieces()) {
      if (piece.parameter != parameter) {
        EXPECT_GT(piece.parameter, parameter);
        parameter = piece.parameter;
        at = 0;
      }
      EXPECT_GT(piece.count, 0);
      EXPECT_EQ(piece.begin, at);
      at += piece.count;
      all += piece.count;
      const std::int64_t first = arena.slice(parameter).begin + piece.begin;
      const Range shard = layout.shard(layout.bucket_of(parameter), piece.rank);
      EXPECT_TRUE(first >= shard.begin && first + piece.count <= shard.end);
    }
    EXPECT_EQ(all, arena.numel());
  });
}

TEST(BucketLayout, HashesDifferForIncompatibleRanks) {
  const auto hash = [](int world, Precision precision, const CommunicatorOptions& options = {}) {
    const ParameterArena arena = make_arena(world, precision);
    return BucketLayout(arena, world, options).hash();
  };
  const std::uint64_t plain = hash(4, Precision::f32);
  EXPECT_EQ(hash(4, Precision::f32), plain);
  EXPECT_NE(hash(2, Precision::f32), plain);
  EXPECT_NE(hash(4, Precision::bf16), plain);
  EXPECT_NE(hash(4, Precision::f32, {.algorithm = Algorithm::ring}), plain);
  EXPECT_NE(hash(4, Precision::f32, {.algorithm = Algorithm::hierarchical, .node_size = 2}),
            hash(4, Precision::f32, {.algorithm = Algorithm::hierarchical, .node_size = 4}));
  std::vector<Parameter> renamed = odd_parameters();
  renamed[2].name = "q2";
  const ParameterArena arena(renamed, {}, bucketed({}, 4, kBuckets));
  EXPECT_NE(BucketLayout(arena, 4).hash(), plain);
}

TEST(BucketLayout, RejectsAnArenaMadeForOtherRanks) {
  const ParameterArena arena(odd_parameters(), {}, ArenaOptions{});
  EXPECT_THROW(BucketLayout(arena, 7), ArgumentError);
  EXPECT_THROW(bucketed({}, 2, {.bucket_bytes = 0}), ArgumentError);
}

}  // namespace athanor::bucket_layout_test
