#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

namespace simt::test {
namespace {

std::vector<float> some_numbers(std::size_t count) {
  std::vector<float> values(count);
  std::uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
  }
  return values;
}

TEST(Executor, GridStrideKernelReachesEveryElementOnce) {
  in_all_orders([] {
    const auto x = some_numbers(10'001);
    const OnDevice<float> dx(x), dy(std::vector<float>(x.size(), 1.0f));
    EXPECT_OK(axpy(10'001, 2.0f, dx.data(), dy.data(), nullptr));
    const auto y = dy.read();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], 1.0f + 2.0f * x[i]) << i;
  });
}

TEST(Executor, VariablesOfTheDeviceAreSetAndReadByTheHost) {
  in_all_orders([] {
    const OnDevice<float> x(std::vector<float>(64, 1.0f));
    for (const float weight : {3.0f, 5.0f}) {
      float sums[2] = {-1, -1};
      EXPECT_OK(weigh({1, weight}, x.data(), sums));
      EXPECT_EQ(sums[0], -1) << "only the second was read";
      EXPECT_EQ(sums[1], weight == 3 ? 96 : 480);
    }
  });
}

TEST(Executor, BlockReductionsEqualASum) {
  in_all_orders([] {
    constexpr int kRows = 7, kCols = 1000;
    const auto x = some_numbers(kRows * kCols);
    const OnDevice<float> dx(x), dy(kRows);
    EXPECT_OK(row_sum(kRows, kCols, dx.data(), dy.data(), nullptr));
    const auto y = dy.read();
    for (int row = 0; row < kRows; ++row) {
      EXPECT_NEAR(y[row], std::accumulate(&x[row * kCols], &x[row * kCols] + kCols, 0.0), 1e-4);
    }
  });
}

// What nvcc's side of simt::launch asks a driver for once. One of many kernels may be forgotten, but none is
// taken for another.
TEST(Executor, KernelsAreSeenByDevice) {
  detail::SeenKernels seen;
  EXPECT_FALSE(seen.has(nullptr, 1));
  const std::vector<char> code(4096);
  const auto kernel = [&](std::size_t i) { return static_cast<const void*>(&code[i * 16]); };
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_FALSE(seen.has(kernel(i), 0)) << i;
    seen.add(kernel(i), 0);
    EXPECT_TRUE(seen.has(kernel(i), 0)) << i;
    EXPECT_FALSE(seen.has(kernel(i), 1)) << i;
  }
  EXPECT_TRUE(seen.has(kernel(254), 0));
}

TEST(Executor, DynamicSharedMemoryHoldsARow) {
  in_all_orders([] {
    constexpr int kRows = 5, kCols = 333;
    const auto x = some_numbers(kRows * kCols);
    const OnDevice<float> dx(x), dy(kRows * kCols);
    EXPECT_OK(softmax(kRows, kCols, dx.data(), dy.data(), nullptr));
    const auto y = dy.read();
    for (int row = 0; row < kRows; ++row) {
      double sum = 0;
      for (int i = 0; i < kCols; ++i) sum += std::exp(double{x[row * kCols + i]});
      for (int i = 0; i < kCols; ++i) {
        ASSERT_NEAR(y[row * kCols + i], std::exp(double{x[row * kCols + i]}) / sum, 1e-7);
      }
    }
  });
}

TEST(Executor, TiledMatmulEqualsTheNaiveOne) {
  in_all_orders([] {
    constexpr int kM = 50, kN = 35, kK = 41;
    const auto a = some_numbers(kM * kK), b = some_numbers(kK * kN);
    const OnDevice<float> da(a), db(b), dc(kM * kN);
    EXPECT_OK(matmul(kM, kN, kK, da.data(), db.data(), dc.data(), nullptr));
    const auto c = dc.read();
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) {
        double sum = 0;
        for (int k = 0; k < kK; ++k) sum += double{a[i * kK + k]} * b[k * kN + j];
        ASSERT_NEAR(c[i * kN + j], sum, 1e-5);
      }
    }
  });
}

TEST(Executor, WarpFunctionsGiveWhatCudaSays) {
  in_all_orders([] {
    const OnDevice<unsigned> out(8 * 32);
    EXPECT_OK(warp_functions(out.data(), nullptr));
    const auto y = out.read();
    for (unsigned lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(y[0 * 32 + lane], 5u);
      EXPECT_EQ(y[1 * 32 + lane], lane / 8 * 8 + 1);
      EXPECT_EQ(y[2 * 32 + lane], lane < 3 ? lane : lane - 3);
      EXPECT_EQ(y[3 * 32 + lane], lane % 16 < 13 ? lane + 3 : lane);
      EXPECT_EQ(y[4 * 32 + lane], lane ^ 7);
      EXPECT_EQ(y[5 * 32 + lane], 0xaaaaaaaau);
      EXPECT_EQ(y[6 * 32 + lane], 1u);
      EXPECT_EQ(y[7 * 32 + lane], 0u);
    }
  });
}

TEST(Executor, LanesMayWaitForTheWholeWarpWhileHalfOfItIsNotDone) {
  in_all_orders([] {
    const OnDevice<unsigned> out(32);
    EXPECT_OK(half_then_all(out.data(), nullptr));
    const auto y = out.read();
    const auto half = [](unsigned lane) { return lane < 16 ? lane + (lane ^ 8) : lane; };
    for (unsigned lane = 0; lane < 32; ++lane) EXPECT_EQ(y[lane], half(lane) + 100 * half(lane ^ 1)) << lane;
  });
}

TEST(Executor, BlockVotesCountTheWholeBlock) {
  in_all_orders([] {
    const OnDevice<int> out(3);
    EXPECT_OK(block_votes(out.data(), nullptr));
    EXPECT_EQ(out.read(), (std::vector<int>{34, 1, 0}));
  });
}

TEST(Executor, AtomicsLoseNothing) {
  in_all_orders([] {
    const OnDevice<int> total(std::vector<int>(1, 0));
    EXPECT_OK(count(37, 129, total.data(), nullptr));
    EXPECT_EQ(total.read()[0], 37 * 129);
  });
}

TEST(Executor, OrdersDifferAndEachIsAPermutation) {
  std::vector<std::vector<int>> orders;
  in_all_orders([&] {
    const OnDevice<int> order(5 * 70), next(std::vector<int>(1, 0));
    EXPECT_OK(order_of_threads(5, 70, order.data(), next.data(), nullptr));
    auto seen = order.read();
    orders.push_back(seen);
    std::sort(seen.begin(), seen.end());
    for (int i = 0; i < 5 * 70; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
  });
  EXPECT_EQ(orders[0].front(), 0);
  EXPECT_EQ(orders[1].front(), 5 * 70 - 1);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(orders[i], orders[j]);
  }
}

// ---- planted bugs, found in every build

class Finds : public testing::TestWithParam<Planted> {};

TEST_P(Finds, ItInEveryOrderAndSaysWhere) {
  expect_found(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Executor, Finds,
    testing::Values(
        BUG(divergent_barrier, "barrier divergence", "block (0,0,0)", "thread (0,0,0)",
            "@divergent_barrier_then", "thread (40,0,0)", "@divergent_barrier_else"),
        BUG(early_return, "barrier divergence", "thread (50,0,0)", "thread (0,0,0)", "@early_return"),
        BUG(wrong_mask, "deadlock", "thread (0,0,0)", "warp collective", "0xffff0000", "@wrong_mask"),
        BUG(mask_without_self, "thread (31,0,0)", "lane 31", "@mask_without_self"),
        BUG(lane_outside_mask, "thread (0,0,0)", "lane 20", "mask", "@lane_outside_mask"),
        BUG(different_collectives, "mismatch", "thread (0,0,0)", "@different_collectives_even",
            "thread (1,0,0)", "@different_collectives_odd"),
        BUG(barrier_and_collective, "deadlock", "thread (0,0,0)", "barrier",
            "@barrier_and_collective_barrier"),
        BUG(mask_of_the_gone, "deadlock", "thread (0,0,0)", "warp collective", "@mask_of_the_gone",
            "0xffff0000")),
    name_of);

#if !defined(SIMT_RACE)
TEST(Executor, DynamicSharedMemoryStartsAsNaN) {
  const OnDevice<float> out(64);
  EXPECT_OK(uninitialised_dynamic(out.data()));
  const auto y = out.read();
  for (int i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(i)]), i == 9) << i;
}
#endif

}  // namespace
}  // namespace simt::test
