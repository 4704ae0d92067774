#include "kernels/cpu/context.h"
#include "tests/support/norm_reference.h"

namespace athanor::layer_norm_test {

using test::cast_to;
using Parameters = test::NormParameters;
using test::close;
using test::epsilon_of;
using test::stats_dtype;
using test::wave;

TEST(LayerNorm, ValuesWorkedOutByHand) {
  const Tensor x = Tensor::from(std::vector<float>{1, 3, 0, 8}, {2, 2});
  const Tensor gamma = Tensor::from(std::vector<float>{2, 3}, {2}),
               beta = Tensor::from(std::vector<float>{5, -1}, {2});
  EXPECT_TRUE(close(layer_norm(x, gamma, beta, 0), std::vector<double>{3, 2, 3, 2}, 1e-6));
  EXPECT_TRUE(close(layer_norm(x, {}, {}, 0), std::vector<double>{-1, 1, -1, 1}, 1e-6));
}

TEST(LayerNorm, EveryPassMatchesDoubleReference) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t size : {1, 7, 64, 96, 768, 1025}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, size));
      const std::int64_t rows = size == 96 ? 120 : 9;
      const Tensor x = require_grad(cast_to(wave({3, rows / 3, size}, 2), dtype)),
                   dy = cast_to(wave(x.shape(), 0, 4), dtype);
      const Parameters norm(size, stats_dtype(dtype));
      const test::NormReference expected(reshape(x.detach(), {rows, size}), 1, norm.gamma, norm.beta, dy,
                                         1e-5);
      const Tensor y = layer_norm(x, norm.gamma, norm.beta);
      EXPECT_TRUE(close(y, expected.y, 8 * epsilon_of(dtype)));
      if (size == 1) continue;  // nothing depends on x
      backward(y, dy);
      const double sums = 64 * epsilon_of(stats_dtype(dtype)), least = dtype == DType::f64 ? sums : 0;
      EXPECT_TRUE(close(grad_of(x), expected.dx,
                        size == 96 ? std::max(4 * epsilon_of(dtype), least) : epsilon_of(dtype) + sums));
      EXPECT_TRUE(close(grad_of(norm.gamma), expected.dgamma, std::max(sums, 1e-5)));
      EXPECT_TRUE(close(grad_of(norm.beta), expected.dbeta, std::max(sums, 1e-5)));
    }
  }
}

// Above a million elements rows are summed in 64 chunks of more rows, the last of which is short.
TEST(LayerNorm, ParameterGradientsOfManyRows) {
  const Tensor x = cast_to(wave({150'001, 8}, 1), DType::f32),
               dy = cast_to(wave(x.shape(), 0.3, 4), DType::f32);
  const Parameters norm(8, DType::f32);
  const test::NormReference expected(x, 1, norm.gamma, norm.beta, dy, 1e-5);
  backward(layer_norm(x, norm.gamma, norm.beta), dy);
  EXPECT_TRUE(close(grad_of(norm.gamma), expected.dgamma, 1e-5));
  EXPECT_TRUE(close(grad_of(norm.beta), expected.dbeta, 1e-5));
}

TEST(LayerNorm, EdgeSizes) {
  const Tensor x = Tensor::zeros({0, 4});
  const Parameters norm(4, DType::f32);
  require_grad(x);
  const Tensor y = layer_norm(x, norm.gamma, norm.beta);
  backward(y, y.detach());
  EXPECT_EQ(grad_of(norm.gamma).to_vector(), std::vector<double>(4, 0.0));
  EXPECT_EQ(layer_norm(Tensor::from(std::vector<float>{5}, {1})).to_vector(), std::vector<double>{0});
  EXPECT_THROW(layer_norm(Tensor::zeros({3, 0})), ArgumentError);
  EXPECT_THROW(layer_norm(Tensor::zeros({3, 4}), norm.gamma, {}, 1e-5f, 2), ArgumentError);
  EXPECT_THROW(layer_norm(Tensor::zeros({3, 4}), {}, {}, 1e-5f, 3), ArgumentError);
  EXPECT_THROW(layer_norm(Tensor::zeros({3, 5}), norm.gamma), ArgumentError);
}

TEST(LayerNorm, ParameterGradientsAreWrittenAndThenAdded) {
  for (const DType slices : {DType::f32, DType::f64}) {
    const Tensor x = cast_to(wave({40, 7}, 1), slices), dy = cast_to(wave({40, 7}, 0.3, 4), slices);
    const Parameters norm(7, slices);
    backward(layer_norm(x, norm.gamma, norm.beta), dy);
    const std::vector<double> dgamma = grad_of(norm.gamma).to_vector(),
                              dbeta = grad_of(norm.beta).to_vector();

    const Tensor gamma_slice = Tensor::empty({7}, {slices}), beta_slice = Tensor::empty({7}, {slices});
    kernels::fill(cpu_context(), gamma_slice, 99), kernels::fill(cpu_context(), beta_slice, 99);
    leaf_of(norm.gamma).bind(gamma_slice), leaf_of(norm.beta).bind(beta_slice);
    for (const double times : {1.0, 2.0, 3.0}) {
      backward(layer_norm(x, norm.gamma, norm.beta), dy);
      for (std::size_t i = 0; i < 7; ++i) {
        EXPECT_NEAR(gamma_slice.to_vector()[i], times * dgamma[i], 1e-5) << i;
        EXPECT_NEAR(beta_slice.to_vector()[i], times * dbeta[i], 1e-5) << i;
      }
    }
  }
}

}  // namespace athanor::layer_norm_test
