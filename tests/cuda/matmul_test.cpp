#include "kernels/matmul.h"

#include "kernels/cuda/grid_partition.h"
#include "kernels/cuda/vendor.h"
#include "tests/cuda/products.h"

namespace athanor::matmul_test {

using test::context;
using MatmulOnDevice = test::DeviceTest;
using ColumnSumsOnDevice = test::DeviceTest;
using test::exact;
using test::Layout;
using test::on_device_like;
using test::swapped;

void check(const Tensor& a, const Tensor& b, const Tensor& y, const test::ProductOptions& how = {}) {
  test::check_product(MatmulImpl::reference, a, b, y, how);
}

TEST_F(MatmulOnDevice, TwoByTwoByHand) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}, test::device());
  const Tensor b = Tensor::from(std::vector<float>{5, 6, 7, 8}, {2, 2}, test::device());
  const Tensor y = empty_like(a);
  for (const MatmulImpl impl : {MatmulImpl::reference, MatmulImpl::automatic}) {
    kernels::matmul(context(), impl, a, b, {}, Activation::none, y, Write::overwrite);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{19, 22, 43, 50}));
  }
}

// Sizes about those of tiles, packets and steps; both tiles' worth of rows and columns.
TEST_F(MatmulOnDevice, EqualsCpuForEveryTypeSizeAndLayout) {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 5},    {5, 1, 3},     {3, 9, 1},
                                   {16, 16, 16}, {17, 33, 20}, {64, 120, 84}, {130, 65, 70},
                                   {65, 24, 17}, {10, 64, 84}, {8, 40, 72}};
  for (const DType dtype : test::kFloating) {
    for (const auto& [m, k, n] : sizes) {
      for (int layout = 0; layout < 4; ++layout) {
        SCOPED_TRACE(fmt::format("{} {}x{}x{} layout {}", dtype, m, k, n, layout));
        const Tensor a = layout & 1 ? swapped(exact({{k, m}}, dtype, {1})) : exact({{m, k}}, dtype, {1});
        const Tensor b = layout & 2 ? swapped(exact({{n, k}}, dtype, {2})) : exact({{k, n}}, dtype, {2});
        check(a, b, Tensor::empty({m, n}, {dtype}));
      }
    }
  }
}

// At least as many tiles of 128 x 128 as gemm() takes them for.
TEST_F(MatmulOnDevice, LargeTilesEqualCpu) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t edge : {0, 1}) {
      constexpr std::int64_t kAcross = 8;
      const std::int64_t m = cuda::kMultiprocessors / kAcross * 128 + edge, n = kAcross * 128 - edge,
                         k = 40 + edge;
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", dtype, m, k, n));
      const Tensor a = exact({{m, k}}, dtype, {1}), b = exact({{k, n}}, dtype, {2});
      check(a, b, Tensor::empty({m, n}, {dtype}));
      check(swapped(exact({{k, m}}, dtype, {1})), swapped(exact({{n, k}}, dtype, {2})),
            Tensor::empty({m, n}, {dtype}));
    }
  }
}

TEST_F(MatmulOnDevice, UniformNumbersAreCloseForEveryType) {
  const std::int64_t m = 70, k = 300, n = 50;
  for (const DType dtype : test::kFloating) {
    const double sums = test::epsilon_of(dtype == DType::f64 ? DType::f64 : DType::f32);
    check(test::filled({{m, k}}, dtype, {1}), test::filled({{k, n}}, dtype, {2}),
          Tensor::empty({m, n}, {dtype}), {.tolerance = k * sums + test::epsilon_of(dtype)});
  }
}

TEST_F(MatmulOnDevice, MisalignedAndGappedOperandsNeedNoDenseCopy) {
  for (const DType dtype : test::kFloating) {
    for (const Layout layout : {Layout::misaligned, Layout::gapped, Layout::transposed}) {
      SCOPED_TRACE(fmt::format("{} layout {}", dtype, int(layout)));
      const Tensor a = exact({{33, 40}, layout}, dtype, {1}), b = exact({{40, 24}, layout}, dtype, {2});
      check(a, b, Tensor::empty({33, 24}, {dtype}));
      // A misaligned result, too.
      check(a, b, test::make({{33, 24}, Layout::misaligned}, dtype));
    }
  }
}

struct Batch {
  Shape a, b, y;
};
constexpr auto kBatches = [] {
  return std::vector<Batch>{{{5, 2, 3}, {1, 3, 4}, {5, 2, 4}},
                            {{1, 2, 3}, {5, 3, 4}, {5, 2, 4}},
                            {{5, 2, 3}, {5, 3, 4}, {5, 2, 4}},
                            {{2, 1, 2, 3}, {1, 3, 3, 4}, {2, 3, 2, 4}},
                            {{1, 3, 2, 3}, {2, 1, 3, 4}, {2, 3, 2, 4}},
                            {{2, 3, 20, 8}, {2, 3, 8, 40}, {2, 3, 20, 40}},
                            // Summed axes: end to end, apart, and both kinds at once.
                            {{5, 2, 3}, {5, 3, 4}, {1, 2, 4}},
                            {{2, 3, 2, 3}, {2, 3, 3, 4}, {1, 3, 2, 4}},
                            {{2, 3, 2, 3}, {2, 3, 3, 4}, {2, 1, 2, 4}},
                            {{2, 3, 2, 3}, {2, 1, 3, 4}, {1, 1, 2, 4}},
                            {{2, 3, 20, 8}, {2, 3, 8, 40}, {1, 1, 20, 40}},
                            {{4, 1, 3, 20, 16}, {1, 5, 3, 16, 24}, {4, 5, 1, 20, 24}},
                            // No products to add up.
                            {{0, 2, 3}, {0, 3, 4}, {1, 2, 4}},
                            {{0, 2, 3}, {0, 3, 4}, {0, 2, 4}}};
};

TEST_F(MatmulOnDevice, BroadcastsAndSumsLeadingAxesLikeCpu) {
  for (const DType dtype : test::kFloating) {
    for (const Batch& batch : kBatches()) {
      for (int layout = 0; layout < 2; ++layout) {
        SCOPED_TRACE(fmt::format("{} {} {} layout {}", dtype, batch.a, batch.b, layout));
        Tensor a = exact({batch.a}, dtype, {3}), b = exact({batch.b}, dtype, {4});
        if (layout == 1) {
          const Tensor at = exact({swapped(a).shape()}, dtype, {3}),
                       bt = exact({swapped(b).shape()}, dtype, {4});
          a = swapped(at), b = swapped(bt);
        }
        check(a, b, Tensor::empty(batch.y, {dtype}));
        check(a, b, exact({batch.y}, dtype, {5}), {.write = Write::accumulate});
      }
    }
  }
}

TEST_F(MatmulOnDevice, BiasAndActivationsAreFused) {
  for (const DType dtype : test::kFloating) {
    for (const auto& [m, k, n] :
         {std::array<std::int64_t, 3>{33, 20, 21}, {70, 17, 90}, {4, 30, 50}, {5, 0, 6}}) {
      for (const Activation activation :
           {Activation::none, Activation::relu, Activation::gelu, Activation::silu}) {
        SCOPED_TRACE(fmt::format("{} {}x{}x{} activation {}", dtype, m, k, n, int(activation)));
        const bool exactly = activation == Activation::none || activation == Activation::relu;
        check(
            exact({{m, k}}, dtype, {1}), swapped(exact({{n, k}}, dtype, {2})), Tensor::empty({m, n}, {dtype}),
            {.activation = activation, .bias = true, .tolerance = exactly ? 0 : 4 * test::epsilon_of(dtype)});
      }
    }
  }
}

TEST_F(MatmulOnDevice, HalfFactorsMayGiveF32AndAddToIt) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor a = exact({{20, 50}}, dtype, {1}), b = exact({{50, 33}}, dtype, {2});
    check(a, b, Tensor::empty({20, 33}, {DType::f32}));
    check(a, b, exact({{20, 33}}, DType::f32, {3}), {.write = Write::accumulate});
    check(a, b, exact({{20, 33}}, dtype, {3}), {.write = Write::accumulate});
  }
}

// One row and one column, packets and single elements, few rows (computed as the transpose), pieces of the
// depth, nothing to multiply.
TEST_F(MatmulOnDevice, AlphaBetaAndCAreFused) {
  for (const DType dtype : test::kFloating) {
    for (const auto& [m, k, n] : {std::array<std::int64_t, 3>{1, 5, 1},
                                  {33, 20, 21},
                                  {70, 17, 96},
                                  {4, 30, 50},
                                  {40, 3000, 32},
                                  {5, 0, 6}}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}x{}x{} in place {}", dtype, m, k, n, in_place));
        const Tensor a = exact({{m, k}}, dtype, {1}), b = swapped(exact({{n, k}}, dtype, {2}));
        test::check_sum(MatmulImpl::reference, a, b, exact({{m, n}}, dtype, {3}), in_place);
        test::check_sum(MatmulImpl::reference, a, b, exact({{m, n}, Layout::misaligned}, dtype, {3}),
                        in_place);
      }
    }
    const Tensor a = exact({{3, 24, 16}}, dtype, {1});
    test::check_sum(MatmulImpl::automatic, a, swapped(a), exact({{3, 24, 24}}, dtype, {2}), false);
    test::check_sum(MatmulImpl::reference, a, swapped(a), exact({{3, 24, 24}}, test::wide_dtype(dtype), {2}),
                    false);
  }
}

// Few tiles and much depth: pieces, and a second kernel that adds them up.
TEST_F(MatmulOnDevice, DeepProductsAreExactAndTheSameEveryTime) {
  for (const DType dtype : test::kFloating) {
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{6, 25}, {40, 30}, {10, 10}}) {
      const std::int64_t k = 3000;
      const Tensor a = swapped(exact({{k, m}}, dtype, {1})), b = exact({{k, n}}, dtype, {2});
      check(a, b, Tensor::empty({m, n}, {dtype}));
      check(a, b, exact({{m, n}}, dtype, {3}), {.write = Write::accumulate});
      check(a, b, Tensor::empty({m, n}, {dtype}), {.activation = Activation::relu, .bias = true});
      // Numbers whose sums do round: the order is fixed.
      const Tensor left = on_device_like(test::filled({{m, k}}, dtype, {4})),
                   right = on_device_like(test::filled({{k, n}}, dtype, {5}));
      const Tensor first = Tensor::empty({m, n}, {dtype, test::device()}), again = empty_like(first);
      for (const Tensor& y : {first, again})
        kernels::matmul(context(), MatmulImpl::reference, left, right, {}, Activation::none, y,
                        Write::overwrite);
      EXPECT_TRUE(test::same_bits(again.to(kCpu), first.to(kCpu)));
    }
  }
}

TEST_F(MatmulOnDevice, EmptySizesGiveZerosOrNothing) {
  for (const DType dtype : test::kFloating) {
    check(exact({{0, 3}}, dtype, {1}), exact({{3, 2}}, dtype, {2}), Tensor::empty({0, 2}, {dtype}));
    check(exact({{2, 0}}, dtype, {1}), exact({{0, 2}}, dtype, {2}), Tensor::empty({2, 2}, {dtype}));
    check(exact({{2, 0}}, dtype, {1}), exact({{0, 2}}, dtype, {2}), exact({{2, 2}}, dtype, {3}),
          {.write = Write::accumulate});
  }
}

TEST_F(MatmulOnDevice, MoreBatchesThanAGridHolds) {
  const std::int64_t batches = 65535 + 3;
  check(exact({{batches, 1, 2}}, DType::f32, {1}), exact({{batches, 2, 1}}, DType::f32, {2}),
        Tensor::empty({batches, 1, 1}));
}

TEST_F(MatmulOnDevice, UnavailableImplementationsAreNamed) {
  const Tensor a = Tensor::zeros({2, 2}, {DType::f32, test::device()}), y = empty_like(a);
  const auto run = [&](MatmulImpl impl) {
    kernels::matmul(context(), impl, a, a, {}, Activation::none, y, Write::overwrite);
  };
  if (!cuda::has_vendor()) {
    EXPECT_THROW(run(MatmulImpl::vendor), BackendError);
  }
}

TEST_F(ColumnSumsOnDevice, EqualCpuForEveryTypeAndSize) {
  const Shape shapes[] = {{0, 5}, {1, 5},   {3, 5},     {1000, 5},     {7, 64},   {2000, 64},
                          {4, 0}, {33, 65}, {100, 520}, {2, 3, 4, 10}, {5000, 1}, {600, 16}};
  for (const DType dtype : test::kFloating) {
    for (const Shape& shape : shapes) {
      for (const DType to : {dtype, dtype == DType::f64 ? dtype : DType::f32}) {
        for (const Write write : {Write::overwrite, Write::accumulate}) {
          SCOPED_TRACE(fmt::format("{} {} to {} write {}", dtype, shape, to, int(write)));
          const Tensor x = exact({shape}, dtype, {1});
          test::expect_as_on_cpu([&](const auto& on) {
            const Tensor sums = on(exact({{shape[shape.rank() - 1]}}, to, {2}));
            kernels::column_sums(on.context, on(x), sums, write);
            return std::vector{sums};
          });
        }
      }
    }
  }
}

TEST_F(ColumnSumsOnDevice, MayStartOffAlignment) {
  for (const DType dtype : test::kFloating) {
    const Tensor x = exact({{50, 16}, Layout::misaligned}, dtype, {1});
    test::expect_as_on_cpu([&](const auto& on) {
      const Tensor sums = on.empty({16}, dtype);
      kernels::column_sums(on.context, on(x), sums, Write::overwrite);
      return std::vector{sums};
    });
  }
}

}  // namespace athanor::matmul_test
