#include "kernels/reduce.h"

#include <cstring>

#include "tests/cuda/ops.h"

namespace athanor::reduce_test {

using test::context;
using ReduceOnDevice = test::DeviceTest;

double tolerance(DType dtype) {
  return is_half(dtype) ? test::epsilon_of(dtype) : 8 * test::epsilon_of(dtype);
}

// x's shape with size 1 along the axes whose bit is set.
Shape reduced(const Shape& shape, unsigned axes) {
  Shape y = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    if ((axes >> i & 1) != 0) y[i] = 1;
  }
  return y;
}

void check_sum(const Tensor& x, unsigned axes, DType to, Write write) {
  SCOPED_TRACE(fmt::format("{} {} axes {:b} to {}", x.dtype(), x.shape(), axes, to));
  test::expect_as_on_cpu(
      [&](const auto& on) {
        const Tensor y = on(test::filled({reduced(x.shape(), axes)}, to, {5}, 1, 2));
        kernels::sum(on.context, on(x), y, 0.5, write);
        return std::vector{y};
      },
      {std::max(tolerance(to), tolerance(test::wide_dtype(x.dtype())))});
}

TEST_F(ReduceOnDevice, SumEqualsCpuOverEveryCaseAndAxes) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : test::shape_cases()) {
      const Tensor x = test::filled(wanted, dtype, {1}, -0.5, 1.5);
      const int rank = x.rank();
      if (x.numel() > 5000 && dtype != DType::f16) continue;
      for (unsigned axes = 0; axes<(1u << rank); axes += rank> 4 ? 37 : 1) {
        SCOPED_TRACE(int(wanted.layout));
        check_sum(x, axes, dtype, Write::overwrite);
      }
      check_sum(x, (1u << rank) - 1, test::wide_dtype(dtype), Write::accumulate);
    }
  }
}

// Long enough for several units, and for registers to be emptied on the way; with and without a dense axis.
TEST_F(ReduceOnDevice, SumEqualsCpuWhereWorkIsCutIntoUnits) {
  const Shape shapes[] = {{150000},     {3, 40000}, {40000, 3}, {9001, 8},    {2000, 72},
                          {3, 5000, 8}, {70, 2100}, {5, 2049},  {5000, 1, 16}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape : shapes) {
      const Tensor x = test::filled({shape}, dtype, {2}, -0.5, 1.5);
      for (unsigned axes = 1; axes < (1u << shape.rank()); ++axes)
        check_sum(x, axes, DType::f32, Write::overwrite);
    }
    const Tensor wide = test::filled({{300, 1200}}, dtype, {3}, -0.5, 1.5);
    check_sum(wide, 1, dtype, Write::accumulate);
    check_sum(wide.view_as_strided({1200, 300}, {1, 1200}, 0), 1, dtype, Write::overwrite);
    check_sum(wide.view_as_strided({1200, 300}, {1, 1200}, 0), 2, dtype, Write::overwrite);
    check_sum(wide.view_as_strided({300, 400}, {1200, 3}, 0), 2, dtype, Write::overwrite);
    check_sum(wide.view_as_strided({300, 400}, {1200, 3}, 0), 1, dtype, Write::overwrite);
    check_sum(wide.view_as_strided({20, 300, 40}, {40, 1200, 1}, 0), 5, dtype, Write::overwrite);
    check_sum(wide.view_as_strided({20, 300, 40}, {40, 1200, 1}, 0), 3, dtype, Write::overwrite);
  }
}

TEST_F(ReduceOnDevice, RepeatedElementsCountAsOften) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7}, {7});  // sums are exact
  for (const Strides& strides : {Strides{0, 1}, Strides{0, 0}}) {
    for (const unsigned axes : {1u, 2u, 3u})
      check_sum(x.view_as_strided({500, 7}, strides, 0), axes, DType::f32, Write::overwrite);
  }
}

// 2^24 + 1 has no f32: a thread's f32 sum that begins with 2^24 does not grow by ones, until it is emptied
// into a double. Of `terms` terms a thread, the first of them 2^24, 64 may be lost; `threads` share a sum.
void expect_grown(const std::vector<double>& sums, double threads, double terms) {
  for (const double sum : {sums.front(), sums.back()}) {
    const double grown = sum / threads - 0x1p24;
    EXPECT_LE(grown, terms - 1);
    EXPECT_GE(grown, terms - 1 - 64);
  }
}

// So many outputs that none is cut into units.
TEST_F(ReduceOnDevice, LongSumsDoNotStall) {
  constexpr std::int64_t kOutputs = 520, kPerThread = 192, kThreads = 256, kColumns = 255;
  // Rows: every second number, so that a thread takes one at a time.
  {
    constexpr std::int64_t n = kThreads * kPerThread;
    const Tensor x = Tensor::empty({2 * n}), y = Tensor::empty({kOutputs, 1}, {DType::f64, test::device()});
    for (std::int64_t i = 0; i < 2 * n; ++i) x.data<float>()[i] = i < 2 * kThreads ? 0x1p24f : 1;
    kernels::sum(context(), x.to(test::device()).view_as_strided({kOutputs, n}, {0, 2}, 0), y);
    expect_grown(y.to_vector(), kThreads, kPerThread);
  }
  // Columns: a thread has one of them, in a row of 255.
  {
    const Tensor x = Tensor::empty({kPerThread, kColumns}),
                 y = Tensor::empty({kOutputs, 1, kColumns}, {DType::f64, test::device()});
    for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = i < kColumns ? 0x1p24f : 1;
    kernels::sum(context(),
                 x.to(test::device()).view_as_strided({kOutputs, kPerThread, kColumns}, {0, kColumns, 1}, 0),
                 y);
    expect_grown(y.to_vector(), 1, kPerThread);
  }
}

TEST_F(ReduceOnDevice, BitsDoNotDependOnAlignmentOrTime) {
  const std::pair<Shape, unsigned> cases[] = {
      {{30000}, 1u}, {{500, 40}, 1u}, {{40, 500}, 2u}, {{12, 50, 16}, 5u}};
  for (const DType dtype : test::kFloating) {
    for (const auto& [shape, axes] : cases) {
      const Tensor x = test::filled({shape}, dtype, {6});
      std::vector<Tensor> results;
      for (const std::int64_t off : {0, 0, 1}) {
        const Tensor moved =
            Tensor::empty({x.numel() + off}, {dtype, kCpu}).view_as_strided(shape, x.strides(), off);
        std::memcpy(moved.raw_data(), x.raw_data(), x.bytes());
        results.push_back(Tensor::empty(reduced(shape, axes), {test::wide_dtype(dtype), test::device()}));
        kernels::sum(context(), test::on_device_like(moved), results.back());
      }
      EXPECT_TRUE(test::same_bits(results[0].to(kCpu), results[1].to(kCpu)));
      EXPECT_TRUE(test::same_bits(results[0].to(kCpu), results[2].to(kCpu)))
          << fmt::format("{} {}", dtype, shape);
    }
  }
}

TEST_F(ReduceOnDevice, SquaredDeviationAndItsGradientEqualCpu) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : test::shape_cases()) {
      if (wanted.shape.numel() > 5000 && dtype != DType::f32) continue;
      const Tensor x = test::filled(wanted, dtype, {7}, 0, 2);
      for (unsigned axes = 0; axes<(1u << x.rank()); axes += x.rank()> 4 ? 37 : 3) {
        SCOPED_TRACE(fmt::format("{} {} {} axes {:b}", dtype, x.shape(), int(wanted.layout), axes));
        const Shape shape = reduced(x.shape(), axes);
        const Tensor mean = test::filled({shape}, test::wide_dtype(dtype), {8}, 0.9, 1.1),
                     dy = test::filled({shape}, dtype, {9});
        test::expect_as_on_cpu(
            [&](const auto& on) {
              const Tensor y = on.empty(shape, dtype), dx = on.empty(x.shape(), dtype);
              kernels::squared_deviation(on.context, on(x), on(mean), y, 0.25);
              kernels::squared_deviation_backward(on.context, on(x), on(mean), on(dy), dx, 0.25);
              return std::vector{y, dx};
            },
            {tolerance(dtype), test::kBits});
      }
    }
  }
}

TEST_F(ReduceOnDevice, CountNonfiniteCountsAndWaits) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t n : {0, 1, 300, 20000}) {
      const Tensor x = test::filled({{n}}, dtype, {1});
      std::int64_t bad = 0;
      dispatch_floating(dtype, "test", [&]<class T>() {
        for (std::int64_t i = 0; i < n; i += 97, ++bad)
          x.data<T>()[i] = T(static_cast<Accumulate<T>>(i % 2 == 0   ? NAN
                                                        : i % 3 == 0 ? INFINITY
                                                                     : -INFINITY));
      });
      EXPECT_EQ(kernels::count_nonfinite(context(), x.to(test::device())), bad);
    }
  }
}

}  // namespace athanor::reduce_test
