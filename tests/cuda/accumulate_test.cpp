#include "kernels/accumulate.h"

#include <limits>

#include "kernels/step_state.h"
#include "tests/cuda/device.h"

namespace athanor::accumulate_test {

using kernels::Combine;
using test::Layout;
using AccumulateOnDevice = test::DeviceTest;

constexpr DType kCombined[] = {DType::f64, DType::f32, DType::f16, DType::bf16,
                               DType::i64, DType::i32, DType::u8};

TEST_F(AccumulateOnDevice, EqualsTheCpu) {
  CudaContext& context = cuda_context(test::device());
  for (const DType dtype : kCombined) {
    for (const Combine how : {Combine::sum, Combine::max}) {
      for (const std::int64_t n : {0, 1, 33, 1031}) {
        for (const Layout layout : {Layout::dense, Layout::misaligned}) {
          const Tensor x = test::filled({{n}, layout}, dtype, {1}, -100, 100);
          const Tensor y = test::filled({{n}, layout}, dtype, {2}, -100, 100);
          const Tensor on_device = test::on_device_like(y);
          kernels::accumulate(context, how, test::on_device_like(x), on_device);
          kernels::accumulate(cpu_context(), how, x, y);
          EXPECT_TRUE(test::same_bits(on_device.to(kCpu), y)) << name_of(dtype) << " " << n;
        }
      }
    }
  }
}

TEST_F(AccumulateOnDevice, RowsEqualTheCpu) {
  CudaContext& context = cuda_context(test::device());
  for (const DType dtype : kCombined) {
    for (const Combine how : {Combine::sum, Combine::max}) {
      for (const std::int64_t rows : {1, 2, 5}) {
        for (const std::int64_t n : {0, 1, 33, 1024}) {
          const Tensor x = test::filled({{rows, n}}, dtype, {3}, -9, 9);
          const Tensor y = Tensor::empty({n}, {dtype, kCpu});
          const Tensor on_device = Tensor::empty({n}, {dtype, test::device()});
          kernels::combine_rows(context, how, x.to(test::device()), on_device);
          kernels::combine_rows(cpu_context(), how, x, y);
          EXPECT_TRUE(test::same_bits(on_device.to(kCpu), y)) << name_of(dtype) << " " << rows << " x " << n;
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
      const Tensor here = Tensor::zeros({1}, {DType::f64, kCpu});
      const Tensor there = Tensor::zeros({1}, {DType::f64, test::device()});
      kernels::sum_squares(cpu_context(), x, here);
      kernels::sum_squares(context, test::on_device_like(x), there);
      const double expected = here.item();
      EXPECT_NEAR(there.item(), expected, 1e-12 * expected);
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
