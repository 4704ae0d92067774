#include "kernels/scalar_ops.h"

#include <cmath>

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/scalar_ops.h"
#include "tests/cuda/device.h"

namespace athanor::scalar_ops_test {

using ScalarOpsOnDevice = test::DeviceTest;

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

template <class Op> void expect_cpu_results(const Op& op, double low = -2.1) {
  CudaContext& context = cuda_context(test::device());
  for (const DType dtype : kFloating) {
    for (const auto& wanted : test::shape_cases()) {
      SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, int(wanted.layout)));
      const Tensor x = test::filled(wanted, dtype, {1}, low, 2.1), dy = test::filled(wanted, dtype, {2});
      const Tensor y = empty_like(x), dx = empty_like(x);
      const Tensor on = test::on_device_like(x), dy_on = test::on_device_like(dy);
      const Tensor y_on = empty_like(on), dx_on = empty_like(on);
      kernels::scalar_forward(cpu_context(), op, x, y);
      kernels::scalar_forward(context, op, on, y_on);
      EXPECT_TRUE(test::close(y_on.to(kCpu), y, 2 * test::epsilon_of(dtype)));
      kernels::scalar_backward(cpu_context(), op, x, dy, dx);
      kernels::scalar_backward(context, op, on, dy_on, dx_on);
      EXPECT_TRUE(test::close(dx_on.to(kCpu), dx, 2 * test::epsilon_of(dtype)));
    }
  }
}

TEST_F(ScalarOpsOnDevice, LeakyReluEqualsCpu) {
  expect_cpu_results(kernels::LeakyRelu{0.1});
}
TEST_F(ScalarOpsOnDevice, EluEqualsCpu) {
  expect_cpu_results(kernels::Elu{1.5});
}
TEST_F(ScalarOpsOnDevice, SoftplusEqualsCpu) {
  expect_cpu_results(kernels::Softplus{2, 3});
}
TEST_F(ScalarOpsOnDevice, ClampEqualsCpu) {
  expect_cpu_results(kernels::Clamp{0.5, NAN});
}
TEST_F(ScalarOpsOnDevice, PowerEqualsCpu) {
  expect_cpu_results(kernels::Power{-1.5}, 0.1);
}

TEST_F(ScalarOpsOnDevice, CentralDifferencesAgree) {
  using Inputs = std::span<const Tensor>;
  const Tensor x = test::filled({{2, 5}}, DType::f64, {1}, -1.7, 1.7).to(test::device());
  require_grad(x);
  for (Tensor (*op)(Inputs) :
       {+[](Inputs in) { return leaky_relu(in[0], 0.1); }, +[](Inputs in) { return elu(in[0], 1.5); },
        +[](Inputs in) { return softplus(in[0], 2, 3); }, +[](Inputs in) { return clamp(in[0], -1, 1.25); },
        +[](Inputs in) { return pow(in[0], 3); }})
    gradcheck(op, std::vector<Tensor>{x});
}

TEST_F(ScalarOpsOnDevice, KeepNaN) {
  const Tensor x = Tensor::from(std::vector<float>(20, NAN), {20}, test::device());
  for (const Tensor& y : {leaky_relu(x), elu(x), softplus(x), clamp(x, 0, 1), pow(x, 2)}) {
    for (const double value : y.to_vector()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_F(ScalarOpsOnDevice, ClampTakesIntegers) {
  const Tensor x = Tensor::from(std::vector<std::int64_t>{-5, 0, 5}, {3}, test::device());
  EXPECT_EQ(clamp(x, -1, 2).to_vector(), (std::vector<double>{-1, 0, 2}));
}

}  // namespace athanor::scalar_ops_test
