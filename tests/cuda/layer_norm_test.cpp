#include <cmath>

#include "kernels/norm.h"
#include "kernels/on_device.h"
#include "tests/cuda/device.h"

namespace athanor::layer_norm_test {

using LayerNormOnDevice = test::DeviceTest;
using kernels::GradientTarget;
using test::close;
using test::epsilon_of;
using test::filled;
using test::Layout;

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// Rows that a warp holds in one vector a thread and in several, that a block does, and that nobody does;
// more rows than run at once; off alignment.
const test::ShapeCase kShapes[] = {{{3, 1}},     {{5, 7}},
                                   {{70, 8}},    {{2, 9, 40}},
                                   {{21, 256}},  {{13, 768}},
                                   {{2100, 16}}, {{7, 1032}},
                                   {{5, 2048}},  {{3, 3000}},
                                   {{3, 8200}},  {{2, 1301}},
                                   {{1, 4096}},  {{9, 64}, Layout::misaligned}};

CudaContext& context() {
  return cuda_context(test::device());
}
DType stats_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}
Tensor on_device(const Tensor& x) {
  return x.defined() ? test::on_device_like(x) : Tensor();
}
double tolerance(DType dtype) {
  return 2 * epsilon_of(dtype) + 64 * epsilon_of(stats_dtype(dtype));
}
double sum_tolerance(DType dtype) {
  return 256 * epsilon_of(stats_dtype(dtype));
}

struct Case {
  Tensor x, gamma, beta, stats, y, dy;

  Case(const test::ShapeCase& wanted, DType dtype)
      : x(filled(wanted, dtype, {1}, -1, 3)),
        gamma(filled({{x.dim(-1)}}, stats_dtype(dtype), {2}, 0.5, 1.5)),
        beta(filled({{x.dim(-1)}}, stats_dtype(dtype), {3})),
        stats(Tensor::empty({x.numel() / x.dim(-1), 2}, {stats_dtype(dtype), kCpu})),
        y(test::make(wanted, dtype)),
        dy(filled(wanted, dtype, {4})) {}
};

TEST_F(LayerNormOnDevice, ForwardEqualsCpu) {
  for (const DType dtype : kFloating) {
    for (const auto& wanted : kShapes) {
      for (const bool bare : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, bare));
        Case c(wanted, dtype);
        if (bare) c.gamma = c.beta = {};
        const Tensor stats = on_device(c.stats), y = on_device(c.y);
        kernels::layer_norm_forward(cpu_context(), c.x, c.gamma, c.beta, 1e-5, c.stats, c.y);
        kernels::layer_norm_forward(context(), on_device(c.x), on_device(c.gamma), on_device(c.beta), 1e-5,
                                    stats, y);
        EXPECT_TRUE(close(stats.to(kCpu), c.stats, sum_tolerance(dtype)));
        EXPECT_TRUE(close(test::on_cpu_like(y), c.y, tolerance(dtype)));
      }
    }
  }
}

TEST_F(LayerNormOnDevice, ForwardByHand) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 0, 0, 2, 2}, {2, 4}, test::device());
  const Tensor gamma = Tensor::from(std::vector<float>{1, 1, 2, 2}, {4}, test::device());
  const Tensor stats = Tensor::empty({2, 2}, {DType::f32, test::device()}), y = empty_like(x);
  kernels::layer_norm_forward(context(), x, gamma, Tensor(), 0, stats, y);
  const double s = 1 / std::sqrt(1.25);
  EXPECT_TRUE(close(y.to(kCpu), std::vector<double>{-1.5 * s, -0.5 * s, s, 3 * s, -1, -1, 2, 2}, 1e-6));
  EXPECT_TRUE(close(stats.to(kCpu), std::vector<double>{2.5, s, 1, 1}, 1e-6));
}

struct Gradients {
  Tensor dx, dgamma, dbeta;
};

Gradients backward(const Case& c, bool input, bool parameters, Device device) {
  const auto there = [&](const Tensor& t) { return device.is_cpu() ? t : on_device(t); };
  Gradients result;
  GradientTarget dgamma, dbeta;
  if (input) result.dx = there(test::filled({c.x.shape()}, c.x.dtype(), {8}));
  if (parameters) {
    result.dgamma = there(filled({{c.x.dim(-1)}}, c.stats.dtype(), {6}));
    result.dbeta = there(filled({{c.x.dim(-1)}}, c.stats.dtype(), {7}));
    dgamma = {result.dgamma, Write::accumulate};
    dbeta = {result.dbeta, Write::overwrite};
  }
  athanor::on_device(device, [&](auto& on) {
    kernels::layer_norm_backward(on, there(c.x), there(c.gamma), there(c.stats), there(c.dy), result.dx,
                                 dgamma, dbeta);
  });
  return result;
}

void expect_close(const Gradients& found, const Gradients& expected, DType dtype) {
  if (expected.dx.defined()) {
    EXPECT_TRUE(close(found.dx.to(kCpu), expected.dx, tolerance(dtype)));
  }
  if (!expected.dgamma.defined()) return;
  EXPECT_TRUE(close(found.dgamma.to(kCpu), expected.dgamma, sum_tolerance(dtype)));
  EXPECT_TRUE(close(found.dbeta.to(kCpu), expected.dbeta, sum_tolerance(dtype)));
}

TEST_F(LayerNormOnDevice, BackwardEqualsCpu) {
  for (const DType dtype : kFloating) {
    for (const auto& wanted : kShapes) {
      for (const bool bare : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, bare));
        Case c(wanted, dtype);
        if (bare) c.gamma = {};
        kernels::layer_norm_forward(cpu_context(), c.x, c.gamma, c.beta, 1e-3, c.stats, c.y);
        expect_close(backward(c, true, true, test::device()), backward(c, true, true, kCpu), dtype);
      }
    }
  }
}

TEST_F(LayerNormOnDevice, BackwardWritesOnlyRequestedGradients) {
  for (const auto& wanted : {test::ShapeCase{{19, 64}}, test::ShapeCase{{19, 9}}}) {
    Case c(wanted, DType::f16);
    kernels::layer_norm_forward(cpu_context(), c.x, c.gamma, c.beta, 1e-3, c.stats, c.y);
    expect_close(backward(c, true, false, test::device()), backward(c, true, false, kCpu), DType::f16);
    expect_close(backward(c, false, true, test::device()), backward(c, false, true, kCpu), DType::f16);
  }
}

TEST_F(LayerNormOnDevice, NoRows) {
  for (const std::int64_t size : {8, 9}) {
    const Tensor x = Tensor::empty({0, size}, {DType::f32, test::device()});
    const Tensor stats = Tensor::empty({0, 2}, {DType::f32, test::device()});
    const Tensor dgamma = on_device(filled({{size}}, DType::f32)), dbeta = on_device(dgamma.to(kCpu));
    kernels::layer_norm_forward(context(), x, Tensor(), Tensor(), 1e-5, stats, empty_like(x));
    kernels::layer_norm_backward(context(), x, Tensor(), stats, x, empty_like(x), {dgamma, Write::overwrite},
                                 {dbeta, Write::accumulate});
    EXPECT_EQ(dgamma.to(kCpu).to_vector(), std::vector<double>(static_cast<std::size_t>(size), 0.0));
    EXPECT_TRUE(test::same_bits(dbeta.to(kCpu), filled({{size}}, DType::f32)));
  }
}

}  // namespace athanor::layer_norm_test
