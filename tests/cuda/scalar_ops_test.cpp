#include "autograd/scalar_ops.h"

#include "kernels/scalar_ops.h"
#include "tests/cuda/ops.h"

namespace athanor::scalar_ops_test {

using ScalarOpsOnDevice = test::DeviceTest;

template <class Op> void expect_cpu_results(const Op& op, double low = -2.1) {
  test::for_every_shape([&](const test::ShapeCase& wanted, DType dtype) {
    const Tensor x = test::filled(wanted, dtype, {1}, low, 2.1), dy = test::filled(wanted, dtype, {2});
    test::expect_as_on_cpu(
        [&](const auto& on) {
          const Tensor in = on(x), y = empty_like(in), dx = empty_like(in);
          kernels::scalar_forward(on.context, op, in, y);
          kernels::scalar_backward(on.context, op, in, on(dy), dx);
          return std::vector{y, dx};
        },
        {2 * test::epsilon_of(dtype)});
  });
}

TEST_F(ScalarOpsOnDevice, EachEqualsCpu) {
  expect_cpu_results(kernels::LeakyRelu{0.1});
  expect_cpu_results(kernels::Elu{1.5});
  expect_cpu_results(kernels::Softplus{2, 3});
  expect_cpu_results(kernels::Clamp{0.5, NAN});
  expect_cpu_results(kernels::Power{-1.5}, 0.1);
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
