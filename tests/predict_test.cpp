// What `athanor predict` says, against numbers worked out by hand. tests/ranks_mpi_test.cpp holds them
// against what is allocated.
#include "dist/predict.h"

#include <gtest/gtest.h>

#include "nn/models/model.h"

namespace athanor {
namespace {

using dist::BucketLayout;
using dist::RankBytes;

/// One vector of 100,003 elements; eight shards of it end at 196 x 8 x 64 = 100,352 in sixteen bits.
ParameterArena vector_arena(Precision precision, int ranks) {
  return ParameterArena({{"p", Tensor::zeros({100003})}}, {},
                        dist::bucketed({.precision = precision}, ranks));
}

TEST(Predict, BytesByHand) {
  const ParameterArena arena = vector_arena(Precision::bf16, 8);
  const BucketLayout layout(arena, 8);
  constexpr std::int64_t n = 100352;
  EXPECT_EQ(
      dist::bytes_per_rank(arena, layout, 2, false),
      (RankBytes{.weights = 2 * n, .gradients = 2 * n, .masters = 4 * n, .optimizer = 8 * n, .comm = 2 * n}));
  EXPECT_EQ(dist::bytes_per_rank(arena, layout, 2, true), (RankBytes{.weights = 2 * n,
                                                                     .gradients = 2 * n,
                                                                     .masters = 4 * n / 8,
                                                                     .optimizer = 8 * n / 8,
                                                                     .comm = 2 * n}));
  EXPECT_EQ(dist::sent_per_step(arena, layout, false), 2 * 2 * n / 8 * 7);
  EXPECT_EQ(dist::sent_per_step(arena, layout, true), 2 * 2 * n / 8 * 7);
}

// Weights are their own masters. With one rank there is nothing to divide, nor to send.
TEST(Predict, BytesInF32AndOnOneRank) {
  const ParameterArena arena = vector_arena(Precision::f32, 1);
  const BucketLayout layout(arena, 1);
  constexpr std::int64_t n = 100032;  // a multiple of 32
  const RankBytes all{.weights = 4 * n, .gradients = 4 * n, .optimizer = 4 * n};
  EXPECT_EQ(dist::bytes_per_rank(arena, layout, 1, false), all);
  EXPECT_EQ(dist::bytes_per_rank(arena, layout, 1, true), all);
  EXPECT_EQ(dist::sent_per_step(arena, layout, true), 0);
}

bool pays(const char* name, int ranks, Precision precision, int states) {
  const auto model = nn::make_model(name, {}, 0);
  const ParameterArena arena(model->parameters(), model->buffers(),
                             dist::bucketed({.precision = precision}, ranks));
  const BucketLayout layout(arena, ranks);
  return dist::zero1_pays(dist::bytes_per_rank(arena, layout, states, false),
                          dist::bytes_per_rank(arena, layout, states, true));
}

TEST(Predict, SmallModelsAreNotWorthIt) {
  EXPECT_FALSE(pays("resnet20", 2, Precision::f32, 1));
  EXPECT_FALSE(pays("resnet20", 64, Precision::bf16, 2));
  EXPECT_TRUE(pays("resnet18", 8, Precision::bf16, 2));
  EXPECT_FALSE(pays("resnet18", 1, Precision::bf16, 2));
}

}  // namespace
}  // namespace athanor
