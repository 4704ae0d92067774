#include "kernels/accumulate.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/cpu/context.h"
#include "kernels/step_state.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"

namespace athanor::accumulate_test {

using kernels::Combine;
using test::Layout;

constexpr DType kCombined[] = {DType::f64, DType::f32, DType::f16, DType::bf16,
                               DType::i64, DType::i32, DType::u8};

template <class T> T combined(Combine how, T a, T b) {
  using A = kernels::ComputeType<T>;
  if (how == Combine::max) return A(a) > A(b) ? a : b;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return T(A(a) + A(b));
  }
}

TEST(Accumulate, CombinesElementByElement) {
  for (const DType dtype : kCombined) {
    for (const Combine how : {Combine::sum, Combine::max}) {
      for (const std::int64_t n : {0, 1, 7, 64, 257, 70001}) {
        for (const Layout layout : {Layout::dense, Layout::misaligned}) {
          const Tensor x = test::filled({{n}, layout}, dtype, {1}, -100, 100);
          const Tensor y = test::filled({{n}, layout}, dtype, {2}, -100, 100);
          const Tensor expected = Tensor::empty({n}, {dtype, kCpu});
          dispatch_any(dtype, [&]<class T>() {
            for (std::int64_t i = 0; i < n; ++i)
              expected.data<T>()[i] = combined(how, x.data<T>()[i], y.data<T>()[i]);
          });
          kernels::accumulate(cpu_context(), how, x, y);
          EXPECT_TRUE(test::same_bits(y, expected)) << name_of(dtype) << " " << n;
        }
      }
    }
  }
}

TEST(Accumulate, IntegersWrapAndNaNStays) {
  const Tensor a = Tensor::from<std::int64_t>({std::numeric_limits<std::int64_t>::max()}, {1});
  kernels::accumulate(cpu_context(), Combine::sum, Tensor::from<std::int64_t>({1}, {1}), a);
  EXPECT_EQ(a.data<std::int64_t>()[0], std::numeric_limits<std::int64_t>::min());
  const Tensor b = Tensor::from<std::uint8_t>({250}, {1});
  kernels::accumulate(cpu_context(), Combine::sum, Tensor::from<std::uint8_t>({10}, {1}), b);
  EXPECT_EQ(b.data<std::uint8_t>()[0], 4);
  const float nan = std::nanf("");
  for (const Combine how : {Combine::sum, Combine::max}) {
    const Tensor y = Tensor::from<float>({nan, 1, 2}, {3});
    kernels::accumulate(cpu_context(), how, Tensor::from<float>({1, nan, 3}, {3}), y);
    EXPECT_TRUE(std::isnan(y.data<float>()[0]) && std::isnan(y.data<float>()[1]));
    EXPECT_EQ(y.data<float>()[2], how == Combine::sum ? 5 : 3);
  }
}

TEST(CombineRows, GoesFromTheFirstRowToTheLastAndRoundsOnce) {
  for (const DType dtype : kCombined) {
    for (const Combine how : {Combine::sum, Combine::max}) {
      for (const std::int64_t rows : {1, 2, 3, 9}) {
        for (const std::int64_t n : {0, 1, 8, 33, 1025, 40003}) {
          const Tensor x = test::filled({{rows, n}}, dtype, {3}, -9, 9);
          const Tensor y = Tensor::empty({n}, {dtype, kCpu}), expected = Tensor::empty({n}, {dtype, kCpu});
          dispatch_any(dtype, [&]<class T>() {
            using A = kernels::ComputeType<T>;
            for (std::int64_t i = 0; i < n; ++i) {
              A sum = A(x.data<T>()[i]);
              for (std::int64_t r = 1; r < rows; ++r) sum = combined<A>(how, sum, A(x.data<T>()[r * n + i]));
              expected.data<T>()[i] = T(sum);
            }
          });
          kernels::combine_rows(cpu_context(), how, x, y);
          EXPECT_TRUE(test::same_bits(y, expected)) << name_of(dtype) << " " << rows << " x " << n;
        }
      }
    }
  }
}

TEST(SumSquares, IsTheSumInDouble) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t n : {0, 1, 31, 16384, 16385, 100003}) {
      const Tensor x = test::filled({{n}}, dtype, {4}), total = Tensor::zeros({1}, {DType::f64, kCpu});
      double expected = 0;
      for (const double value : x.to_vector()) expected += value * value;
      kernels::sum_squares(cpu_context(), x, total);
      EXPECT_NEAR(total.data<double>()[0], expected, 1e-12 * expected) << name_of(dtype) << " " << n;
    }
  }
}

TEST(SumSquares, IsFiniteIfAndOnlyIfAllElementsAre) {
  const auto sum = [](float value) {
    const Tensor x = Tensor::zeros({20000}), total = Tensor::zeros({1}, {DType::f64, kCpu});
    x.data<float>()[17001] = value;
    kernels::sum_squares(cpu_context(), x, total);
    return total.data<double>()[0];
  };
  EXPECT_TRUE(std::isfinite(sum(std::numeric_limits<float>::max())));
  EXPECT_FALSE(std::isfinite(sum(std::numeric_limits<float>::infinity())));
  EXPECT_FALSE(std::isfinite(sum(std::nanf(""))));
}

TEST(MeasureSquares, SetsNormAndClipping) {
  StepState step;
  step.loss_scale = 2;
  CpuContext& context = cpu_context();
  context.bind_step(&step);
  kernels::measure_squares(context, Tensor::from<double>({36, 64}, {2}), {.max_norm = 2.5f});
  EXPECT_EQ(step.grad_norm, 5);
  EXPECT_EQ(step.found_inf, 0);
  EXPECT_NEAR(step.clip_coefficient, 0.5f, 1e-6f);
  kernels::measure_squares(context, Tensor::from<double>({36, std::nan("")}, {2}), {.max_norm = 2.5f});
  EXPECT_EQ(step.found_inf, 1);
  context.bind_step(nullptr);
}

}  // namespace athanor::accumulate_test
