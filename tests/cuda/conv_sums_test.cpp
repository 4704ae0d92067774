// A convolution that also sums its channels, and a batch norm that reads those sums instead of y.
#include <limits>

#include "autograd/detail/conv_norm_parts.h"
#include "autograd/grad_mode.h"
#include "kernels/conv.h"
#include "kernels/cuda/context.h"
#include "tests/cuda/ops.h"

namespace athanor::conv_sums_test {

using ConvSumsOnDevice = test::DeviceTest;
using test::filled;

struct Case {
  Shape x, w;
  Conv2dParams params = {};
};

// Widths of every tile, rows that end inside one, and filters that are plain products.
const Case kCases[] = {{{9, 16, 16, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},
                       {{5, 15, 15, 16}, {24, 3, 3, 16}, {.stride = {2, 2}, .padding = {1, 1}}},
                       {{13, 9, 9, 32}, {72, 1, 1, 32}},
                       {{65, 16, 16, 8}, {136, 1, 1, 8}},
                       {{65, 16, 16, 8}, {136, 2, 1, 8}, {.padding = {1, 0}}}};

struct Found {
  bool fused;
  Tensor y, sums;
};

Found run(const Case& wanted, const Tensor& x, const Tensor& w) {
  Conv2dParams params = wanted.params;
  params.impl = ConvImpl::reference;
  Found found{false, Tensor::empty(conv2d_shape(wanted.x, wanted.w, params), x.options()),
              Tensor::empty({2, wanted.w[0]}, {DType::f32, x.device()})};
  found.fused = kernels::conv2d_forward_sums(cuda_context(test::device()), params, x, w, found.y, found.sums);
  return found;
}

TEST_F(ConvSumsOnDevice, AreThoseOfTheValuesAsTheyAreRounded) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const Case& wanted : kCases) {
      SCOPED_TRACE(fmt::format("{} x {} w {}", dtype, wanted.x, wanted.w));
      if (test::kChecksEveryAccess && wanted.x[0] > 20) continue;
      const Tensor x = test::on_device_like(filled({wanted.x}, dtype, {1}, -1, 2)),
                   w = test::on_device_like(filled({wanted.w}, dtype, {2}));
      const auto [fused, y, sums] = run(wanted, x, w);
      ASSERT_TRUE(fused);
      const Tensor plain = empty_like(y);
      Conv2dParams params = wanted.params;
      params.impl = ConvImpl::reference;
      kernels::conv2d_forward(cuda_context(test::device()), params, x, w, {}, plain);
      EXPECT_TRUE(test::same_bits(y.to(kCpu), plain.to(kCpu)));

      const std::vector<double> values = y.to_vector(), found = sums.to_vector();
      const auto channels = static_cast<std::size_t>(wanted.w[0]);
      for (std::size_t c = 0; c < channels; ++c) {
        double sum = 0, squares = 0, size = 0;
        for (std::size_t i = c; i < values.size(); i += channels)
          sum += values[i], squares += values[i] * values[i], size += std::abs(values[i]);
        EXPECT_NEAR(found[c], sum, 2e-6 * size) << c;
        EXPECT_NEAR(found[channels + c], squares, 2e-6 * squares) << c;
      }
    }
  }
}

// In the last tile, rows that y does not have are zeros times w: NaN where w is infinite.
TEST_F(ConvSumsOnDevice, RowsBeyondTheLastAreNotSummed) {
  const Case wanted{{5, 15, 15, 16}, {24, 1, 1, 16}};  // 1125 rows
  const Tensor x = ones(wanted.x, {DType::f16, test::device()});
  Tensor w = filled({wanted.w}, DType::f16, {2});
  w.data<Half>()[3] = Half(std::numeric_limits<float>::infinity());
  const auto [fused, y, sums] = run(wanted, x, w.to(test::device()));
  ASSERT_TRUE(fused);
  const std::vector<double> found = sums.to_vector();
  EXPECT_TRUE(std::isinf(found[0]) && std::isinf(found[24]));
  for (std::size_t c = 1; c < 24; ++c) EXPECT_TRUE(std::isfinite(found[c])) << c;
}

TEST_F(ConvSumsOnDevice, NothingIsDoneWhereThereIsNoCode) {
  const auto refused = [](const Case& wanted, DType dtype) {
    const Tensor x = ones(wanted.x, {dtype, test::device()}), w = ones(wanted.w, {dtype, test::device()});
    return !run(wanted, x, w).fused;
  };
  const Case good{{9, 16, 16, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}};
  EXPECT_FALSE(refused(good, DType::f16));
  EXPECT_TRUE(refused(good, DType::f32));
  EXPECT_TRUE(refused({{9, 16, 16, 3}, {16, 3, 3, 3}}, DType::f16));
  EXPECT_TRUE(refused({{9, 16, 16, 16}, {12, 3, 3, 16}}, DType::f16));
  EXPECT_TRUE(refused({{9, 16, 16, 16}, {16, 3, 3, 8}, {.groups = 2}}, DType::f16));
  EXPECT_TRUE(refused({{9, 16, 16, 16}, {16, 3, 3, 16}, {.activation = Activation::relu}}, DType::f16));
  EXPECT_TRUE(refused({{1, 4, 4, 512}, {64, 3, 3, 512}}, DType::f16));  // few tiles, each cut along its depth
}

struct Outcome {
  Tensor y, dx, dw, dgamma, mean, var;
};

Outcome train(DType dtype, bool as_one_op, const Tensor& residual) {
  const Case& wanted = kCases[0];
  const Tensor x = test::on_device_like(filled({wanted.x}, dtype, {1}, -1, 2)),
               w = test::on_device_like(filled({wanted.w}, dtype, {2}, -0.2, 0.3));
  const Tensor gamma = filled({{16}}, DType::f32, {3}, 0.5, 1.5).to(test::device()),
               beta = filled({{16}}, DType::f32, {4}).to(test::device());
  const Tensor mean = Tensor::zeros({16}, {DType::f32, test::device()}),
               var = ones({16}, {DType::f32, test::device()});
  for (const Tensor& leaf : {x, w, gamma, beta}) require_grad(leaf);
  const Tensor no_bias;
  const BatchNormParams params{.activation = Activation::relu};
  const Tensor y =
      as_one_op ? conv_norm(x, {w, no_bias, wanted.params}, {gamma, beta, mean, var, true, params}, residual)
                : batch_norm(conv2d(x, w, {}, wanted.params), gamma, beta, mean, var, true, params, residual);
  backward(y, test::on_device_like(filled({y.shape()}, dtype, {5})));
  return {y.detach(), grad_of(x), grad_of(w), grad_of(gamma), mean, var};
}

TEST_F(ConvSumsOnDevice, ANormOfThemIsThatOfTheValues) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const bool with_residual : {false, true}) {
      SCOPED_TRACE(fmt::format("{} residual {}", dtype, with_residual));
      const Tensor residual =
          with_residual ? filled({{9, 16, 16, 16}}, dtype, {6}).to(test::device()) : Tensor();
      const Outcome apart = train(dtype, false, residual), together = train(dtype, true, residual);
      const double unit = dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
      EXPECT_TRUE(test::close(together.y.to(kCpu), apart.y.to(kCpu), unit));
      EXPECT_TRUE(test::close(together.dx.to(kCpu), apart.dx.to(kCpu), 8 * unit));
      EXPECT_TRUE(test::close(together.dw.to(kCpu), apart.dw.to(kCpu), 8 * unit));
      EXPECT_TRUE(test::close(together.dgamma.to(kCpu), apart.dgamma.to(kCpu), 8 * unit));
      EXPECT_TRUE(test::close(together.mean.to(kCpu), apart.mean.to(kCpu), 1e-6));
      EXPECT_TRUE(test::close(together.var.to(kCpu), apart.var.to(kCpu), 1e-6));
    }
  }
}

TEST_F(ConvSumsOnDevice, AreAFusionOfHalfTypes) {
  const Case& wanted = kCases[0];
  const auto are_found = [&](DType dtype) {
    const Tensor x = ones(wanted.x, {dtype, test::device()}), w = ones(wanted.w, {dtype, test::device()});
    Tensor sums;
    (void)detail::conv2d_with_sums(x, w, {}, wanted.params, sums);
    return sums.defined();
  };
  EXPECT_TRUE(are_found(DType::f16));
  EXPECT_FALSE(are_found(DType::f32));
  const NoFusion off;
  EXPECT_FALSE(are_found(DType::f16));
}

}  // namespace athanor::conv_sums_test
