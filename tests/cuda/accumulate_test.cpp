#include "kernels/accumulate.h"

#include <limits>

#include "kernels/cuda/context.h"
#include "kernels/step_state.h"
#include "tests/cuda/ops.h"

namespace athanor::accumulate_test {

using kernels::Combine;
using test::Layout;
using AccumulateOnDevice = test::DeviceTest;

constexpr DType kCombined[] = {DType::f64, DType::f32, DType::f16, DType::bf16,
                               DType::i64, DType::i32, DType::u8};

TEST_F(AccumulateOnDevice, EqualsTheCpu) {
  for (const DType dtype : kCombined) {
    for (const Combine how : {Combine::sum, Combine::max}) {
      for (const std::int64_t n : {0, 1, 33, 1031}) {
        for (const Layout layout : {Layout::dense, Layout::misaligned}) {
          SCOPED_TRACE(fmt::format("{} {}", dtype, n));
          test::expect_as_on_cpu([&](const auto& on) {
            const Tensor y = on(test::filled({{n}, layout}, dtype, {2}, -100, 100));
            kernels::accumulate(on.context, how, on(test::filled({{n}, layout}, dtype, {1}, -100, 100)), y);
            return std::vector{y};
          });
        }
      }
    }
  }
}

TEST_F(AccumulateOnDevice, RowsEqualTheCpu) {
  for (const DType dtype : kCombined) {
    for (const Combine how : {Combine::sum, Combine::max}) {
      for (const std::int64_t rows : {1, 2, 5}) {
        for (const std::int64_t n : {0, 1, 33, 1024}) {
          SCOPED_TRACE(fmt::format("{} {} x {}", dtype, rows, n));
          test::expect_as_on_cpu([&](const auto& on) {
            const Tensor y = on.empty({n}, dtype);
            kernels::combine_rows(on.context, how, on(test::filled({{rows, n}}, dtype, {3}, -9, 9)), y);
            return std::vector{y};
          });
        }
      }
    }
  }
}

TEST_F(AccumulateOnDevice, SquaresNormAndClipping) {
  CudaContext& context = cuda_context(test::device());
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t n : {1, 31, 9001}) {
      const Tensor x = test::filled({{n}, Layout::misaligned}, dtype, {4});
      test::expect_as_on_cpu(
          [&](const auto& on) {
            const Tensor sum = on(Tensor::zeros({1}, {DType::f64}));
            kernels::sum_squares(on.context, on(x), sum);
            return std::vector{sum};
          },
          {1e-12});
    }
  }
  const Tensor state = Tensor::zeros({static_cast<std::int64_t>(sizeof(StepState))}, {DType::u8, kCpu});
  auto* step = reinterpret_cast<StepState*>(state.raw_data());
  *step = StepState();
  step->loss_scale = 2;
  const auto measured = [&](double second) {
    const Tensor memory = state.to(test::device());
    context.bind_step(reinterpret_cast<StepState*>(memory.raw_data()));
    kernels::measure_squares(context, Tensor::from<double>({36, second}, {2}, test::device()),
                             {.max_norm = 2.5f});
    context.bind_step(nullptr);
    StepState result;
    const Tensor back = memory.to(kCpu);
    std::memcpy(&result, back.raw_data(), sizeof(result));
    return result;
  };
  EXPECT_EQ(measured(64).grad_norm, 5);
  EXPECT_NEAR(measured(64).clip_coefficient, 0.5f, 1e-6f);
  EXPECT_EQ(measured(64).found_inf, 0);
  EXPECT_EQ(measured(std::numeric_limits<double>::infinity()).found_inf, 1);
}

}  // namespace athanor::accumulate_test
