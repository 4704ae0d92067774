#include <cstdlib>

#include "kernels/cpu/context.h"
#include "kernels/cuda/grid_partition.h"
#include "kernels/matmul.h"
#include "tests/cuda/products.h"

// Our own products on tensor cores, one kernel at a time: through cp.async (kernels/cuda/gemm_pipeline.h),
// and by wgmma (kernels/cuda/matmul_wgmma.cu). What all products share is in matmul_test.cpp.

namespace athanor::gemm_test {

using test::context;
using CpAsyncGemmOnDevice = test::DeviceTest;
using test::exact;
using test::Layout;
using test::on_device_like;
using test::swapped;

constexpr DType kHalfTypes[] = {DType::f16, DType::bf16};

class WgmmaGemmOnDevice : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && device_info(test::device()).sm() != 90) GTEST_SKIP() << "wgmma needs sm_90";
  }
};

/// Integers [..., rows, columns], dense along the rows or, `deep` false for a factor's rows, along the
/// columns.
Tensor factor(const Shape& shape, bool rows_are_dense, DType dtype, std::uint64_t seed) {
  if (rows_are_dense) return exact({shape}, dtype, {seed});
  Shape turned = shape;
  std::swap(turned[shape.rank() - 1], turned[shape.rank() - 2]);
  return swapped(exact({turned}, dtype, {seed}));
}

// Sizes below, at and beyond those of tiles and of the depth of a step; one step, fewer than stages, and
// more.
constexpr std::int64_t kSizes[][3] = {{8, 8, 8},     {64, 64, 64},   {128, 32, 128}, {72, 40, 200},
                                      {136, 72, 64}, {200, 136, 88}, {264, 328, 136}};

void check_sizes(MatmulImpl impl) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& [m, k, n] : kSizes) {
      for (int layout = 0; layout < 4; ++layout) {
        SCOPED_TRACE(fmt::format("{} {}x{}x{} layout {}", dtype, m, k, n, layout));
        test::check_product(impl, factor({m, k}, (layout & 1) == 0, dtype, 1),
                            factor({k, n}, (layout & 2) == 0, dtype, 2), Tensor::empty({m, n}, {dtype}));
      }
    }
  }
}

// As large as gemm() takes its large tile for, and a little more.
void check_large(MatmulImpl impl, std::int64_t columns) {
  constexpr std::int64_t kAcross = 8;
  const std::int64_t m = cuda::kMultiprocessors / kAcross * 128 + 8, n = kAcross * columns, k = 136;
  test::check_product(impl, factor({m, k}, true, DType::bf16, 1), factor({k, n}, false, DType::bf16, 2),
                      Tensor::empty({m, n}, {DType::bf16}));
}

void check_finish(MatmulImpl impl) {
  for (const DType dtype : kHalfTypes) {
    for (const std::int64_t n : {72, 69}) {  // packets of y, and single elements
      SCOPED_TRACE(fmt::format("{} {} columns", dtype, n));
      const Tensor a = factor({136, 40}, true, dtype, 1), b = factor({40, n}, false, dtype, 2);
      const Shape shape{136, n};
      test::check_product(impl, a, b, Tensor::empty(shape, {dtype}), {.bias = true});
      test::check_product(impl, a, b, Tensor::empty(shape, {dtype}),
                          {.activation = Activation::relu, .bias = true});
      test::check_product(
          impl, a, b, Tensor::empty(shape, {dtype}),
          {.activation = Activation::gelu, .bias = true, .tolerance = 4 * test::epsilon_of(dtype)});
      test::check_product(impl, a, b, exact({shape}, dtype, {3}), {.write = Write::accumulate});
      test::check_product(impl, a, b, Tensor::empty(shape, {DType::f32}));
      test::check_product(impl, a, b, exact({shape}, DType::f32, {3}), {.write = Write::accumulate});
      test::check_product(impl, a, b, test::make({shape, Layout::misaligned}, dtype), {.bias = true});
      for (const bool in_place : {false, true})
        test::check_sum(impl, a, b, exact({shape}, dtype, {3}), in_place);
      test::check_sum(impl, a, b, exact({shape}, DType::f32, {3}), false);
    }
  }
}

void check_batches(MatmulImpl impl) {
  const Shape shapes[][3] = {{{3, 72, 40}, {3, 40, 136}, {3, 72, 136}},
                             {{3, 72, 40}, {1, 40, 136}, {3, 72, 136}},
                             {{1, 72, 40}, {3, 40, 136}, {3, 72, 136}}};
  for (const DType dtype : kHalfTypes) {
    for (const auto& [a, b, y] : shapes) {
      for (const bool dense : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} {} dense rows {}", dtype, a, b, dense));
        test::check_product(impl, factor(a, dense, dtype, 1), factor(b, dense, dtype, 2),
                            Tensor::empty(y, {dtype}), {.bias = true});
      }
    }
  }
}

Tensor product_on_device(MatmulImpl impl, const Tensor& a, const Tensor& b) {
  const Tensor y = Tensor::empty({a.dim(0), b.dim(1)}, {a.dtype(), test::device()});
  kernels::matmul(context(), impl, a, b, {}, Activation::none, y, Write::overwrite);
  return y.to(kCpu);
}

TEST_F(CpAsyncGemmOnDevice, EqualsCpuForEverySizeAndLayout) {
  check_sizes(MatmulImpl::mma);
}

TEST_F(CpAsyncGemmOnDevice, LargeTilesEqualCpu) {
  check_large(MatmulImpl::mma, 128);
}

TEST_F(CpAsyncGemmOnDevice, BiasActivationsAndSumsAreFused) {
  check_finish(MatmulImpl::mma);
}

TEST_F(CpAsyncGemmOnDevice, BatchesMoveTheFactors) {
  check_batches(MatmulImpl::mma);
}

// Where a factor lies decides whether its packets are copied by cp.async or go through registers, but not the
// bits.
TEST_F(CpAsyncGemmOnDevice, HasTheBitsOfTheKernelThroughRegisters) {
  if (std::getenv("SIMT_SUMS")) GTEST_SKIP() << "the emulator was asked to change the order of sums";
  const std::int64_t sizes[][3] = {{72, 200, 136}, {64, 3000, 72}, {16 * 128, 72, 8 * 128}};
  for (const DType dtype : kHalfTypes) {
    for (const auto& [m, k, n] : sizes) {
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", dtype, m, k, n));
      const Tensor packed = on_device_like(test::filled({{m, k}}, dtype, {1})),
                   shifted = on_device_like(test::filled({{m, k}, Layout::misaligned}, dtype, {1})),
                   right = on_device_like(test::filled({{k, n}}, dtype, {2}));
      EXPECT_TRUE(test::same_bits(product_on_device(MatmulImpl::mma, packed, right),
                                  product_on_device(MatmulImpl::mma, shifted, right)));
    }
  }
}

TEST_F(WgmmaGemmOnDevice, EqualsCpuForEverySizeAndLayout) {
  check_sizes(MatmulImpl::wgmma);
}

TEST_F(WgmmaGemmOnDevice, TilesOf256ColumnsEqualCpu) {
  check_large(MatmulImpl::wgmma, 256);
}

TEST_F(WgmmaGemmOnDevice, BiasActivationsAndSumsAreFused) {
  check_finish(MatmulImpl::wgmma);
}

TEST_F(WgmmaGemmOnDevice, BatchesMoveTheFactors) {
  check_batches(MatmulImpl::wgmma);
}

TEST_F(WgmmaGemmOnDevice, SizesNeedNotBeMultiplesOfAPacket) {
  // Lines are multiples of 16 bytes apart, but what lies between them and the factors' ends is not theirs.
  for (const DType dtype : kHalfTypes) {
    const auto part = [&](std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
      const std::int64_t line = (columns + 7) / 8 * 8;
      return exact({{rows, line}}, dtype, {seed}).view_as_strided({rows, columns}, {line, 1}, 0);
    };
    test::check_product(MatmulImpl::wgmma, part(70, 37, 1), part(37, 131, 2),
                        Tensor::empty({70, 131}, {dtype}));
  }
}

TEST_F(WgmmaGemmOnDevice, SaysWhatItNeeds) {
  const auto run = [&](const Tensor& a, const Tensor& b) { product_on_device(MatmulImpl::wgmma, a, b); };
  const Tensor f32 = Tensor::zeros({64, 64}, {DType::f32, test::device()});
  EXPECT_THROW(run(f32, f32), BackendError);
  const Tensor odd = Tensor::zeros({63, 63}, {DType::f16, test::device()});
  // Lines 126 bytes apart have no tensor map.
  EXPECT_ERROR(BackendError, run(odd, odd), "matmul", "sm_90a", "16 bytes", "MatmulImpl::automatic");
}

TEST(MatmulImpls, TensorCoreKernelsAreNotForTheCpu) {
  const Tensor a = Tensor::zeros({2, 2}, {DType::f16}), y = empty_like(a);
  for (const MatmulImpl impl : {MatmulImpl::mma, MatmulImpl::wgmma})
    EXPECT_THROW(kernels::matmul(cpu_context(), impl, a, a, {}, Activation::none, y, Write::overwrite),
                 ArgumentError);
}

}  // namespace athanor::gemm_test
