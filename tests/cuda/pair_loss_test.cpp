#include <cmath>

#include "kernels/loss.h"
#include "tests/cuda/device.h"

namespace athanor::pair_loss_test {

using PairLossOnDevice = test::DeviceTest;

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

CudaContext& context() {
  return cuda_context(test::device());
}
DType accumulation(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

// Both devices compute the same functors: what is not summed has the same bits.
template <class Op>
void check_backward(const Op& op, const Tensor& a, const Tensor& b, const Tensor& weight) {
  const DType wide = accumulation(a.dtype());
  const auto run = [&](auto& where, Device device, const Shape& shape) {
    const auto place = [&](const Tensor& x) {
      return device.is_cpu() || !x.defined() ? x : test::on_device_like(x);
    };
    const Tensor dy = test::filled({shape}, wide, {4}, 0.5, 1.5).to(device);
    const Tensor da = Tensor::empty(a.shape(), {a.dtype(), device});
    kernels::pair_loss_backward(where, op, place(a), place(b), place(weight), 0.125, dy, da);
    return da.to(kCpu);
  };
  for (const Shape& shape : {a.shape(), Shape{}})
    EXPECT_TRUE(test::same_bits(run(context(), test::device(), shape), run(cpu_context(), kCpu, shape)));
}

template <class Op> void check(const Op& op, double low) {
  for (const DType dtype : kFloating) {
    for (const auto& wanted : test::shape_cases()) {
      if (wanted.layout != test::Layout::dense && wanted.layout != test::Layout::misaligned) continue;
      const DType wide = accumulation(dtype);
      const Tensor a = test::filled(wanted, dtype, {1}, -3, 3), b = test::filled(wanted, dtype, {2}, low, 1);
      const Tensor weight = Op::kWeighted ? test::filled(wanted, wide, {3}, 0, 3) : Tensor();
      const auto run = [&](auto& where, Device device) {
        const auto place = [&](const Tensor& x) {
          return device.is_cpu() || !x.defined() ? x : test::on_device_like(x);
        };
        const Tensor y = Tensor::empty(a.shape(), {wide, device}), sum = Tensor::empty({}, {wide, device});
        kernels::pair_loss(where, op, place(a), place(b), place(weight), y);
        kernels::pair_loss_sum(where, op, place(a), place(b), place(weight), 0.125, sum);
        return std::pair{y.to(kCpu), sum.to(kCpu)};
      };
      const auto here = run(cpu_context(), kCpu), there = run(context(), test::device());
      SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, int(wanted.layout)));
      EXPECT_TRUE(test::same_bits(there.first, here.first));
      EXPECT_TRUE(test::close(there.second, here.second, 8 * test::epsilon_of(wide)));
      check_backward(op, a, b, weight);
      if constexpr (!Op::kSymmetric) check_backward(kernels::OfTarget<Op>{op}, a, b, weight);
    }
  }
}

TEST_F(PairLossOnDevice, SquaredErrorEqualsCpu) {
  check(kernels::SquaredError{}, -1);
}
TEST_F(PairLossOnDevice, AbsoluteErrorEqualsCpu) {
  check(kernels::AbsoluteError{}, -1);
}
TEST_F(PairLossOnDevice, SmoothL1EqualsCpu) {
  check(kernels::SmoothL1{0.7}, -1);
}
TEST_F(PairLossOnDevice, HuberEqualsCpu) {
  check(kernels::Huber{0.7}, -1);
}
TEST_F(PairLossOnDevice, KlDivergenceEqualsCpu) {
  check(kernels::KlDivergence{}, 0.1);
}
TEST_F(PairLossOnDevice, LogKlDivergenceEqualsCpu) {
  check(kernels::LogKlDivergence{}, -3);
}
TEST_F(PairLossOnDevice, BceWithLogitsEqualsCpu) {
  check(kernels::BceWithLogits{}, 0);
}
TEST_F(PairLossOnDevice, WeightedBceWithLogitsEqualsCpu) {
  check(kernels::WeightedBceWithLogits{}, 0);
}

}  // namespace athanor::pair_loss_test
