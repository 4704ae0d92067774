#include <cmath>

#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/norm.h"
#include "kernels/copy.h"
#include "tests/support/compare.h"
#include "tests/support/waves.h"

namespace athanor::layer_norm_test {

using test::cast_to;
using test::close;
using test::stats_dtype;
using test::wave;

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// gamma and beta of rows of `size`.
struct Parameters {
  Tensor gamma, beta;

  Parameters(std::int64_t size, DType dtype)
      : gamma(cast_to(wave({size}, 1.5, 2), dtype)), beta(cast_to(wave({size}, 0, 3), dtype)) {
    require_grad(gamma);
    require_grad(beta);
  }
};

TEST(LayerNorm, ValuesWorkedOutByHand) {
  const Tensor x = Tensor::from(std::vector<float>{1, 3, 0, 8}, {2, 2});
  const Tensor gamma = Tensor::from(std::vector<float>{2, 3}, {2}),
               beta = Tensor::from(std::vector<float>{5, -1}, {2});
  EXPECT_TRUE(close(layer_norm(x, gamma, beta, 0), std::vector<double>{3, 2, 3, 2}, 1e-6));
  EXPECT_TRUE(close(layer_norm(x, {}, {}, 0), std::vector<double>{-1, 1, -1, 1}, 1e-6));
}

TEST(LayerNorm, ForwardMatchesDoubleReference) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t size : {1, 7, 64, 768, 1025}) {
      const std::int64_t rows = 9;
      const Tensor x = cast_to(wave({3, 3, size}, 2), dtype);
      const Parameters norm(size, stats_dtype(dtype));
      const std::vector<double> in = x.to_vector(), gamma = norm.gamma.to_vector(),
                                beta = norm.beta.to_vector();
      std::vector<double> expected;
      for (std::int64_t r = 0; r < rows; ++r) {
        const double* row = in.data() + r * size;
        double sum = 0, squares = 0;
        for (std::int64_t j = 0; j < size; ++j) sum += row[j];
        const double mean = sum / static_cast<double>(size);
        for (std::int64_t j = 0; j < size; ++j) squares += (row[j] - mean) * (row[j] - mean);
        const double inverse = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
        for (std::int64_t j = 0; j < size; ++j) {
          const auto k = static_cast<std::size_t>(j);
          expected.push_back((row[j] - mean) * inverse * gamma[k] + beta[k]);
        }
      }
      EXPECT_TRUE(close(layer_norm(x, norm.gamma, norm.beta), expected, 8 * test::epsilon_of(dtype)))
          << name_of(dtype) << size;
    }
  }
}

TEST(LayerNorm, Gradcheck) {
  for (const int axes : {1, 2}) {
    const Shape trailing = axes == 1 ? Shape{5} : Shape{3, 5};
    const Tensor x = wave({2, 3, 5}, 0.5), gamma = wave(trailing, 1, 2), beta = wave(trailing, 0, 3);
    for (const Tensor& t : {x, gamma, beta}) require_grad(t);
    gradcheck([&](std::span<const Tensor> in) { return layer_norm(in[0], in[1], in[2], 1e-5f, axes); },
              std::array{x, gamma, beta});
    gradcheck([&](std::span<const Tensor> in) { return layer_norm(in[0], {}, {}, 1e-5f, axes); },
              std::array{x});
  }
}

TEST(LayerNorm, BackwardMatchesF64InEveryDtype) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor x = cast_to(wave({40, 3, 96}, 1), dtype), exact = cast_to(x, DType::f64);
    const Tensor dy = cast_to(wave({40, 3, 96}, 0, 4), dtype);
    const Parameters norm(96, DType::f32);
    const Tensor gamma = cast_to(norm.gamma, DType::f64), beta = cast_to(norm.beta, DType::f64);
    for (const Tensor& t : {x, exact, gamma, beta}) require_grad(t);
    backward(layer_norm(x, norm.gamma, norm.beta), dy);
    backward(layer_norm(exact, gamma, beta), cast_to(dy, DType::f64));
    EXPECT_TRUE(close(grad_of(x), grad_of(exact), 4 * test::epsilon_of(dtype))) << name_of(dtype);
    EXPECT_TRUE(close(grad_of(norm.gamma), grad_of(gamma), 1e-5)) << name_of(dtype);
    EXPECT_TRUE(close(grad_of(norm.beta), grad_of(beta), 1e-5)) << name_of(dtype);
  }
}

// Above a million elements rows are summed in 64 chunks of more rows, the last of which is short.
TEST(LayerNorm, ParameterGradientsOfManyRows) {
  const std::int64_t rows = 150'001, size = 8;
  const Tensor x = cast_to(wave({rows, size}, 1), DType::f32),
               dy = cast_to(wave({rows, size}, 0.3, 4), DType::f32);
  const Parameters norm(size, DType::f32);
  backward(layer_norm(x, norm.gamma, norm.beta), dy);
  std::vector<double> dgamma(size), dbeta(size);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *const row = x.data<float>() + r * size, *const slope = dy.data<float>() + r * size;
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < size; ++j) mean += row[j] / 8.0;
    for (std::int64_t j = 0; j < size; ++j) variance += (row[j] - mean) * (row[j] - mean) / 8.0;
    for (std::int64_t j = 0; j < size; ++j) {
      const auto k = static_cast<std::size_t>(j);
      dgamma[k] += slope[j] * (row[j] - mean) / std::sqrt(variance + 1e-5);
      dbeta[k] += slope[j];
    }
  }
  EXPECT_TRUE(close(grad_of(norm.gamma), dgamma, 1e-5));
  EXPECT_TRUE(close(grad_of(norm.beta), dbeta, 1e-5));
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
