#include "kernels/norm.h"
#include "kernels/on_device.h"
#include "tests/cuda/device.h"

namespace athanor::group_norm_test {

using GroupNormOnDevice = test::DeviceTest;
using kernels::GradientTarget;
using test::close;
using test::epsilon_of;
using test::filled;
using test::Layout;

struct Case {
  test::ShapeCase x;
  std::int64_t groups;
};

// Channels of whole vectors and others, groups within a vector and across several, many pixels, one, off
// alignment.
const Case kCases[] = {{{{2, 3, 4, 6}}, 3},
                       {{{2, 5, 4, 8}}, 2},
                       {{{3, 5, 3, 16}}, 16},
                       {{{1, 40, 40, 2}}, 1},
                       {{{2, 1, 1, 8}}, 2},
                       {{{1, 33, 31, 1}}, 1},
                       {{{4, 24}}, 3},
                       {{{2, 9, 7, 96}}, 32},
                       {{{2, 2, 2, 1032}}, 43},
                       {{{3, 70, 64, 8}}, 8},
                       {{{9, 4, 64}, Layout::misaligned}, 4}};

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

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

struct Operands {
  Tensor x, gamma, beta, stats, y, dy;

  Operands(const Case& c, DType dtype)
      : x(filled(c.x, dtype, {1}, -1, 3)),
        gamma(filled({{x.dim(-1)}}, stats_dtype(dtype), {2}, 0.5, 1.5)),
        beta(filled({{x.dim(-1)}}, stats_dtype(dtype), {3})),
        stats(Tensor::empty({x.dim(0), c.groups, 2}, {stats_dtype(dtype), kCpu})),
        y(test::make(c.x, dtype)),
        dy(filled(c.x, dtype, {4})) {}
};

TEST_F(GroupNormOnDevice, ForwardEqualsCpu) {
  for (const DType dtype : kFloating) {
    for (const Case& c : kCases) {
      for (const bool bare : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} in {} {}", dtype, c.x.shape, c.groups, bare));
        Operands t(c, dtype);
        if (bare) t.gamma = t.beta = {};
        const Tensor stats = on_device(t.stats), y = on_device(t.y);
        kernels::group_norm_forward(cpu_context(), t.x, t.gamma, t.beta, 1e-5, t.stats, t.y);
        kernels::group_norm_forward(context(), on_device(t.x), on_device(t.gamma), on_device(t.beta), 1e-5,
                                    stats, y);
        EXPECT_TRUE(close(stats.to(kCpu), t.stats, 256 * epsilon_of(stats_dtype(dtype))));
        EXPECT_TRUE(close(test::on_cpu_like(y), t.y, tolerance(dtype)));
      }
    }
  }
}

struct Gradients {
  Tensor dx, dgamma, dbeta;
};

Gradients backward(const Operands& t, bool input, bool parameters, Device device) {
  const auto there = [&](const Tensor& x) { return device.is_cpu() ? x : on_device(x); };
  Gradients result;
  GradientTarget dgamma, dbeta;
  if (input) result.dx = there(filled({t.x.shape()}, t.x.dtype(), {8}));
  if (parameters) {
    result.dgamma = there(filled({{t.x.dim(-1)}}, t.stats.dtype(), {6}));
    result.dbeta = there(filled({{t.x.dim(-1)}}, t.stats.dtype(), {7}));
    dgamma = {result.dgamma, Write::accumulate};
    dbeta = {result.dbeta, Write::overwrite};
  }
  athanor::on_device(device, [&](auto& on) {
    kernels::group_norm_backward(on, there(t.x), there(t.gamma), there(t.stats), there(t.dy), result.dx,
                                 dgamma, dbeta);
  });
  return result;
}

void expect_close(const Gradients& found, const Gradients& expected, DType dtype) {
  if (expected.dx.defined()) {
    EXPECT_TRUE(close(found.dx.to(kCpu), expected.dx, tolerance(dtype)));
  }
  if (!expected.dgamma.defined()) return;
  const double sums = 256 * epsilon_of(stats_dtype(dtype));
  EXPECT_TRUE(close(found.dgamma.to(kCpu), expected.dgamma, sums));
  EXPECT_TRUE(close(found.dbeta.to(kCpu), expected.dbeta, sums));
}

TEST_F(GroupNormOnDevice, BackwardEqualsCpu) {
  for (const DType dtype : kFloating) {
    for (const Case& c : kCases) {
      for (const bool bare : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} in {} {}", dtype, c.x.shape, c.groups, bare));
        Operands t(c, dtype);
        if (bare) t.gamma = {};
        kernels::group_norm_forward(cpu_context(), t.x, t.gamma, t.beta, 1e-3, t.stats, t.y);
        expect_close(backward(t, true, true, test::device()), backward(t, true, true, kCpu), dtype);
      }
    }
  }
}

TEST_F(GroupNormOnDevice, BackwardWritesOnlyRequestedGradientsDeterministically) {
  const Operands t({{{3, 40, 20, 16}}, 4}, DType::f16);
  kernels::group_norm_forward(cpu_context(), t.x, t.gamma, t.beta, 1e-3, t.stats, t.y);
  expect_close(backward(t, true, false, test::device()), backward(t, true, false, kCpu), DType::f16);
  expect_close(backward(t, false, true, test::device()), backward(t, false, true, kCpu), DType::f16);
  const Gradients first = backward(t, true, true, test::device()),
                  again = backward(t, true, true, test::device());
  EXPECT_TRUE(test::same_bits(again.dx.to(kCpu), first.dx.to(kCpu)));
  EXPECT_TRUE(test::same_bits(again.dgamma.to(kCpu), first.dgamma.to(kCpu)));
}

TEST_F(GroupNormOnDevice, NothingToNormalise) {
  for (const Shape& shape : {Shape{0, 3, 8}, Shape{2, 0, 8}}) {
    const Tensor x = Tensor::empty(shape, {DType::f32, test::device()});
    const Tensor stats = Tensor::empty({shape[0], 2, 2}, {DType::f32, test::device()});
    const Tensor dgamma = on_device(filled({{8}}, DType::f32)), dbeta = on_device(dgamma.to(kCpu));
    kernels::group_norm_forward(context(), x, Tensor(), Tensor(), 1e-5, stats, empty_like(x));
    kernels::group_norm_backward(context(), x, Tensor(), stats, x, empty_like(x), {dgamma, Write::overwrite},
                                 {dbeta, Write::accumulate});
    EXPECT_EQ(dgamma.to(kCpu).to_vector(), std::vector<double>(8, 0.0));
    EXPECT_TRUE(test::same_bits(dbeta.to(kCpu), filled({{8}}, DType::f32)));
  }
}

}  // namespace athanor::group_norm_test
