// What `athanor plan` says, against numbers worked out by hand. ZeroOne.MemoryIsTheFormulaAtItsPeak holds
// the formulas against what is allocated, tag by tag.
#include <gtest/gtest.h>

#include "examples/athanor_tool/rank_bytes.h"
#include "nn/models/model.h"

namespace athanor::plan_test {

using dist::BucketLayout;
using tool::RankBytes;

/// One vector of 100,003 elements; eight shards of it end at 196 x 8 x 64 = 100,352 in sixteen bits.
ParameterArena vector_arena(Precision precision, int ranks) {
  return ParameterArena({{"p", Tensor::zeros({100003})}}, {},
                        dist::bucketed({.precision = precision}, ranks));
}

tool::StatesOf all(int states) {
  return [=](const Parameter&) { return states; };
}

TEST(Predict, BytesByHand) {
  const ParameterArena arena = vector_arena(Precision::bf16, 8);
  const BucketLayout layout(arena, 8);
  constexpr std::int64_t n = 100352, state = 8 * 100032;  // which is padded to 32 elements alone
  EXPECT_EQ(
      tool::bytes_per_rank(arena, layout, all(2), false),
      (RankBytes{.weights = 2 * n, .gradients = 2 * n, .masters = 4 * n, .optimizer = state, .comm = 2 * n}));
  EXPECT_EQ(tool::bytes_per_rank(arena, layout, all(2), true), (RankBytes{.weights = 2 * n,
                                                                          .gradients = 2 * n,
                                                                          .masters = 4 * n / 8,
                                                                          .optimizer = 8 * n / 8,
                                                                          .comm = 2 * n}));
  EXPECT_EQ(tool::sent_per_step(arena, layout, false), 2 * 2 * n / 8 * 7);
  EXPECT_EQ(tool::sent_per_step(arena, layout, true), 2 * 2 * n / 8 * 7);
}

// Weights are their own masters. With one rank there is nothing to divide, nor to send.
TEST(Predict, BytesInF32AndOnOneRank) {
  const ParameterArena arena = vector_arena(Precision::f32, 1);
  const BucketLayout layout(arena, 1);
  constexpr std::int64_t n = 100032;  // a multiple of 32
  const RankBytes expected{.weights = 4 * n, .gradients = 4 * n, .optimizer = 4 * n};
  EXPECT_EQ(tool::bytes_per_rank(arena, layout, all(1), false), expected);
  EXPECT_EQ(tool::bytes_per_rank(arena, layout, all(1), true), expected);
  EXPECT_EQ(tool::sent_per_step(arena, layout, true), 0);
}

// Two matrices and two vectors for two ranks, which own whole parameters: the bucket is filled from the last,
// and half of its 2,464 elements are before the middle of `large`.
TEST(Predict, WholeParametersCountTheRankWithTheMost) {
  const ParameterArena arena({{"large", Tensor::zeros({64, 32})},
                              {"a", Tensor::zeros({96})},
                              {"small", Tensor::zeros({32, 8})},
                              {"b", Tensor::zeros({64})}},
                             {},
                             dist::bucketed({.precision = Precision::bf16}, 2, {.whole_parameters = true}));
  const BucketLayout layout(arena, 2);
  ASSERT_EQ(layout.buckets().size(), 1u);
  const auto muon = [](const Parameter& parameter) { return parameter.tensor.rank() == 2 ? 1 : 2; };
  const std::int64_t first = layout.shard(0, 0).count(), second = layout.shard(0, 1).count(),
                     n = first + second;
  ASSERT_EQ(first, 2048);  // `large` alone
  ASSERT_GE(second, 96 + 256 + 64);
  EXPECT_EQ(tool::bytes_per_rank(arena, layout, muon, true), (RankBytes{.weights = 2 * n,
                                                                        .gradients = 2 * n,
                                                                        .masters = 4 * 2048,
                                                                        .optimizer = 4 * 2048,
                                                                        .comm = 2 * 2 * 2048}));
  EXPECT_EQ(tool::bytes_per_rank(arena, layout, muon, false).optimizer, 4 * (2048 + 256) + 8 * (96 + 64));
  // The other rank's, where its vectors come to more.
  const auto vectors = [](const Parameter& parameter) { return parameter.tensor.rank() == 2 ? 0 : 40; };
  const RankBytes other = tool::bytes_per_rank(arena, layout, vectors, true);
  EXPECT_EQ(other.optimizer, 4 * 40 * (96 + 64));
  EXPECT_EQ(other.masters, 4 * second);
  // A ring needs segments, whatever the pieces.
  const BucketLayout ring(arena, 2, {.algorithm = dist::Algorithm::ring});
  EXPECT_LT(tool::bytes_per_rank(arena, ring, muon, true).comm, 2 * 2 * n + 1024);
}

bool pays(const char* name, int ranks, Precision precision, int states) {
  const auto model = nn::make_model(name, {}, 0);
  const ParameterArena arena(model->parameters(), model->buffers(),
                             dist::bucketed({.precision = precision}, ranks));
  const BucketLayout layout(arena, ranks);
  return tool::zero1_pays(tool::bytes_per_rank(arena, layout, all(states), false),
                          tool::bytes_per_rank(arena, layout, all(states), true));
}

TEST(Predict, SmallModelsAreNotWorthIt) {
  EXPECT_FALSE(pays("resnet20", 2, Precision::f32, 1));
  EXPECT_FALSE(pays("resnet20", 64, Precision::bf16, 2));
  EXPECT_TRUE(pays("resnet18", 8, Precision::bf16, 2));
  EXPECT_FALSE(pays("resnet18", 1, Precision::bf16, 2));
}

}  // namespace athanor::plan_test
