#include "tensor/philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace athanor::philox_test {

constexpr bool equal(PhiloxBlock a, PhiloxBlock b) {
  return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2] && a.word[3] == b.word[3];
}

// The known answers published with Random123 for philox4x32 with ten rounds.
static_assert(equal(philox4x32({{0, 0, 0, 0}}, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
static_assert(equal(philox4x32({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u),
                    {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
static_assert(equal(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
                    {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));

// Seed and stream fill key and upper counter.
static_assert(equal(philox({0x299f31d0'a4093822, 0x03707344'13198a2e}, 0x85a308d3'243f6a88),
                    {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
static_assert(philox_word({0, 0}, 2) == 0xbc57ac4c);
static_assert(philox_word64({0, 0}, 1) == 0x9b00dbd8'bc57ac4c);

static_assert(random_uniform(0) == 0.0f && random_uniform(~0u) == 1.0f - 0x1p-24f);
static_assert(random_stream(RandomPurpose::dropout, 3, 5) == 0x0100'0000'0003'0005);
static_assert(drop_threshold(0) == 0 && drop_threshold(0.5) == 0x80000000u);

TEST(Philox, UniformsFillTheirRangeEvenly) {
  constexpr int kDraws = 1 << 20;
  std::vector<int> bins(64);
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const float u = random_uniform(philox_word({7, 1}, i));
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    ++bins[static_cast<std::size_t>(u * 64)];
    sum += u;
    squares += double{u} * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 / std::sqrt(12.0 * kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 1e-3);
  double chi = 0;
  for (int count : bins) chi += std::pow(count - kDraws / 64.0, 2) / (kDraws / 64.0);
  EXPECT_LT(chi, 63 + 5 * std::sqrt(2 * 63.0));
}

TEST(Philox, NormalsMatchBoxMullerInDouble) {
  double worst = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint32_t a = philox_word({1, 2}, 2 * i), b = philox_word({1, 2}, 2 * i + 1);
    const NormalPair got = random_normals(a, b);
    const double u = std::fma(static_cast<float>(a), 0x1p-32f, 0x1p-33f);  // rounded to float, by definition
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * M_PI * b * 0x1p-32;
    for (const auto& [x, exact] :
         {std::pair{got.first, radius * std::cos(angle)}, std::pair{got.second, radius * std::sin(angle)}}) {
      const double ulp = std::ldexp(1, std::ilogb(std::max(std::abs(exact), 1e-30)) - 23);
      worst = std::max(worst, std::abs(x - exact) / ulp);
    }
  }
  EXPECT_LT(worst, 4);
}

TEST(Philox, NormalsAtTheEdges) {
  for (const std::uint32_t word :
       {0u, 1u, 0x1fffffffu, 0x20000000u, 0x40000000u, 0x80000000u, 0xc0000000u, ~0u}) {
    for (const std::uint32_t angle : {0u, 0x20000000u, 0x40000000u, 0x80000000u, 0xe0000000u, ~0u}) {
      const NormalPair pair = random_normals(word, angle);
      EXPECT_LT(std::hypot(pair.first, pair.second), 6.8);
    }
  }
  EXPECT_EQ(random_normals(~0u, 123).first, 0.0f);
  EXPECT_NEAR(random_normals(0, 0x40000000u).second, std::sqrt(2 * 33 * std::log(2.0)), 1e-5);
}

TEST(Philox, NormalMomentsAreRight) {
  constexpr int kPairs = 1 << 19;
  double m1 = 0, m2 = 0, m4 = 0, cross = 0;
  for (int i = 0; i < kPairs; ++i) {
    const NormalPair n = random_normals(philox_word({3, 0}, 2 * i), philox_word({3, 0}, 2 * i + 1));
    m1 += n.first + n.second;
    m2 += n.first * n.first + n.second * n.second;
    m4 += std::pow(n.first, 4) + std::pow(n.second, 4);
    cross += n.first * n.second;
  }
  EXPECT_NEAR(m1 / (2 * kPairs), 0, 5e-3);
  EXPECT_NEAR(m2 / (2 * kPairs), 1, 1e-2);
  EXPECT_NEAR(m4 / (2 * kPairs), 3, 5e-2);
  EXPECT_NEAR(cross / kPairs, 0, 5e-3);
}

TEST(Philox, PermutationHoldsEveryIndexOnceAndIsKeyed) {
  for (const std::int64_t n : {0, 1, 2, 3, 17, 4096}) {
    std::vector<std::int64_t> order = philox_permutation(n, {1, 9});
    EXPECT_EQ(order, philox_permutation(n, {1, 9}));
    if (n > 16) {
      EXPECT_NE(order, philox_permutation(n, {2, 9}));
      EXPECT_NE(order, philox_permutation(n, {1, 10}));
    }
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
}

TEST(Philox, PermutationsOfThreeAreEquallyLikely) {
  std::vector<int> seen(27);
  constexpr int kDraws = 60'000;
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<std::int64_t> p = philox_permutation(3, {static_cast<std::uint64_t>(i), 0});
    ++seen[static_cast<std::size_t>(p[0] * 9 + p[1] * 3 + p[2])];
  }
  int kinds = 0;
  for (int count : seen) {
    if (count == 0) continue;
    ++kinds;
    EXPECT_NEAR(count, kDraws / 6, 5 * std::sqrt(kDraws / 6.0));
  }
  EXPECT_EQ(kinds, 6);
}

}  // namespace athanor::philox_test
