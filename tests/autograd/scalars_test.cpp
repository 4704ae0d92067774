// What an op is told as a number (eps, momentum, smoothing) keeps its digits where the tensors are f64.
#include "nn/batch_norm.h"
#include "nn/layer_norm.h"
#include "nn/loss.h"
#include "tests/support/ops.h"
#include "tests/support/waves.h"

namespace athanor::scalars_test {

using test::close;
using test::wave;

// A wave of deviation 1e-3: an eps of 1e-5 decides what it is divided by.
Tensor small_wave(const Shape& shape) {
  std::vector<double> values = wave(shape).to_vector();
  for (double& value : values) value *= 1e-3;
  return Tensor::from(values, shape);
}

struct Moments {
  double mean = 0, var = 0;
};
Moments moments(const std::vector<double>& x, std::size_t first, std::size_t n, std::size_t stride) {
  Moments found;
  for (std::size_t i = 0; i < n; ++i) found.mean += x[first + i * stride] / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i)
    found.var += std::pow(x[first + i * stride] - found.mean, 2) / static_cast<double>(n);
  return found;
}

TEST(Scalars, BatchNormInF64) {
  const Tensor x = small_wave({50, 3}), mean = wave({3}, 2), var = wave({3}, 3, 1);
  const std::vector<double> in = x.to_vector(), old_mean = mean.to_vector(), old_var = var.to_vector();
  const Tensor y = batch_norm(x, {}, {}, mean, var, true, {.eps = 1e-5, .momentum = 0.1});
  std::vector<double> expected(150), new_mean(3), new_var(3);
  for (std::size_t c = 0; c < 3; ++c) {
    const Moments found = moments(in, c, 50, 3);
    for (std::size_t i = c; i < 150; i += 3) expected[i] = (in[i] - found.mean) / std::sqrt(found.var + 1e-5);
    new_mean[c] = 0.9 * old_mean[c] + 0.1 * found.mean;
    new_var[c] = 0.9 * old_var[c] + 0.1 * found.var * 50 / 49;
  }
  EXPECT_TRUE(close(y, expected, 1e-13));
  EXPECT_TRUE(close(mean, new_mean, 1e-15));
  EXPECT_TRUE(close(var, new_var, 1e-15));
  const Tensor fixed = batch_norm(x, {}, {}, mean, var, false, {.eps = 1e-5});
  for (std::size_t i = 0; i < 150; ++i)
    expected[i] = (in[i] - new_mean[i % 3]) / std::sqrt(new_var[i % 3] + 1e-5);
  EXPECT_TRUE(close(fixed, expected, 1e-13));
}

TEST(Scalars, LayerNormInF64) {
  const Tensor x = small_wave({4, 30});
  std::vector<double> expected = x.to_vector();
  for (std::size_t row = 0; row < 4; ++row) {
    const Moments found = moments(x.to_vector(), row * 30, 30, 1);
    for (std::size_t j = row * 30; j < (row + 1) * 30; ++j)
      expected[j] = (expected[j] - found.mean) / std::sqrt(found.var + 1e-5);
  }
  EXPECT_TRUE(close(layer_norm(x, {}, {}, 1e-5), expected, 1e-13));
  EXPECT_TRUE(close(layer_norm(x), expected, 1e-13));
}

TEST(Scalars, LabelSmoothingInF64) {
  const Tensor logits = wave({5, 4}), target = Tensor::from(std::vector<std::int64_t>{0, 3, 1, 2, 0}, {5});
  const std::vector<double> x = logits.to_vector();
  const std::size_t targets[] = {0, 3, 1, 2, 0};
  double expected = 0;
  for (std::size_t row = 0; row < 5; ++row) {
    double powers = 0;
    for (std::size_t c = 0; c < 4; ++c) powers += std::exp(x[row * 4 + c]);
    for (std::size_t c = 0; c < 4; ++c) {
      const double wanted = 0.1 / 4 + (c == targets[row] ? 0.9 : 0);
      expected -= wanted * (x[row * 4 + c] - std::log(powers)) / 5;
    }
  }
  EXPECT_NEAR(cross_entropy(logits, target, 0.1).item(), expected, 1e-14);
  EXPECT_NEAR(nn::CrossEntropyLoss{.label_smoothing = 0.1}(logits, target).item(), expected, 1e-14);
}

TEST(Scalars, ModulesPassThemOn) {
  const Tensor x = small_wave({6, 4});
  nn::BatchNorm norm(4, {.eps = 1e-6, .momentum = 0.3, .scale = false, .shift = false});
  const Tensor x32 = test::cast_to(x, DType::f32);
  EXPECT_TRUE(test::same_bits(norm.forward(x32), batch_norm(x32, {}, {}, {}, {}, true, {.eps = 1e-6})));
  nn::LayerNorm rows({4}, {.eps = 1e-6, .scale = false, .shift = false});
  EXPECT_TRUE(test::same_bits(rows.forward(x32), layer_norm(x32, {}, {}, 1e-6)));
}

// In f32 they are f32: 1e-5 and 1e-5f give the same bits.
TEST(Scalars, AreRoundedWhereTensorsAre) {
  const Tensor x = test::cast_to(small_wave({50, 3}), DType::f32);
  EXPECT_TRUE(test::same_bits(batch_norm(x, {}, {}, {}, {}, true, {.eps = 1e-5}),
                              batch_norm(x, {}, {}, {}, {}, true, {.eps = 1e-5f})));
  EXPECT_TRUE(test::same_bits(layer_norm(x, {}, {}, 1e-5), layer_norm(x, {}, {}, 1e-5f)));
}

}  // namespace athanor::scalars_test
