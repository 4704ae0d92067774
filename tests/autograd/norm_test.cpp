#include <limits>

#include "autograd/grad_mode.h"
#include "kernels/cpu/context.h"
#include "tests/support/activations.h"
#include "tests/support/ops.h"
#include "tests/support/waves.h"

namespace athanor::norm_test {

using test::activated;
using test::cast_to;
using test::close;
using test::kActivations;
using test::same_bits;
using test::stats_dtype;
using test::wave;

// The parameters of a batch norm over `channels`, and its running statistics at 0 and 1.
struct Norm {
  Tensor gamma, beta, mean, var;

  Norm(std::int64_t channels, DType dtype)
      : gamma(cast_to(wave({channels}, 1.5, 2), dtype)),
        beta(cast_to(wave({channels}, 0, 3), dtype)),
        mean(Tensor::zeros({channels}, {dtype, kCpu})),
        var(Tensor::empty({channels}, {dtype, kCpu})) {
    kernels::fill(cpu_context(), var, 1);
    require_grad(gamma);
    require_grad(beta);
  }
  Tensor operator()(const Tensor& x, bool training, Activation activation = Activation::none,
                    const Tensor& residual = {}) const {
    return batch_norm(x, gamma, beta, mean, var, training, {.activation = activation}, residual);
  }
};

// Mean and biased variance of each channel, in double.
struct Moments {
  std::vector<double> mean, var;
  explicit Moments(const Tensor& x) {
    const std::vector<double> values = x.to_vector();
    const auto channels = static_cast<std::size_t>(x.dim(-1)), rows = values.size() / channels;
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (std::size_t r = 0; r < rows; ++r) sum += values[r * channels + c];
      const double m = sum / static_cast<double>(rows);
      for (std::size_t r = 0; r < rows; ++r)
        squares += (values[r * channels + c] - m) * (values[r * channels + c] - m);
      mean.push_back(m);
      var.push_back(squares / static_cast<double>(rows));
    }
  }
};

std::vector<double> reference(const Tensor& x, const Norm& norm, const std::vector<double>& mean,
                              const std::vector<double>& var) {
  std::vector<double> y = x.to_vector();
  const std::vector<double> gamma = norm.gamma.to_vector(), beta = norm.beta.to_vector();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t c = i % gamma.size();
    y[i] = (y[i] - mean[c]) / std::sqrt(var[c] + 1e-5) * gamma[c] + beta[c];
  }
  return y;
}

TEST(BatchNorm, ValuesWorkedOutByHand) {
  // Channel 0: 1, 3 (mean 2, variance 1, unbiased 2); channel 1: 0, 8 (mean 4, variance 16, unbiased 32).
  const Tensor x = Tensor::from(std::vector<float>{1, 0, 3, 8}, {2, 2});
  const Tensor mean = Tensor::from(std::vector<float>{10, 20}, {2}),
               var = Tensor::from(std::vector<float>{1, 1}, {2});
  const Tensor gamma = Tensor::from(std::vector<float>{2, 3}, {2}),
               beta = Tensor::from(std::vector<float>{5, -1}, {2});
  const Tensor y = batch_norm(x, gamma, beta, mean, var, true, {.eps = 0, .momentum = 0.25f});
  EXPECT_TRUE(close(y, std::vector<double>{3, -4, 7, 2}, 1e-6));
  EXPECT_EQ(mean.to_vector(), (std::vector<double>{0.75 * 10 + 0.25 * 2, 0.75 * 20 + 0.25 * 4}));
  EXPECT_EQ(var.to_vector(), (std::vector<double>{0.75 + 0.25 * 2, 0.75 + 0.25 * 32}));
  EXPECT_EQ(mean.version(), 1u);
  EXPECT_EQ(var.version(), 1u);
}

TEST(BatchNorm, ForwardMatchesDoubleReference) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t channels : {1, 3, 6, 16, 64, 100, 512}) {
      for (const std::int64_t rows : {2, 5, 64, 1000}) {
        const Tensor x = cast_to(wave({rows, channels}, 3), dtype);
        const Norm norm(channels, stats_dtype(dtype));
        const Moments moments(x);
        const std::vector<double> expected = reference(x, norm, moments.mean, moments.var);
        double condition = 1;  // how much of a value's rounding the division by a small deviation shows
        for (std::size_t c = 0; c < moments.mean.size(); ++c)
          condition = std::max(condition, 3 / std::sqrt(moments.var[c] + 1e-5));
        const double tolerance = test::epsilon_of(dtype) + 4 * condition *
                                                               test::epsilon_of(stats_dtype(dtype)) *
                                                               (dtype == DType::f64 ? 8 : 1);
        EXPECT_TRUE(close(norm(x, true), expected, tolerance)) << name_of(dtype) << rows << "x" << channels;
        std::vector<double> unbiased = moments.var, mean = moments.mean;
        for (double& value : unbiased)
          value = 0.9 + 0.1 * value * static_cast<double>(rows) / static_cast<double>(rows - 1);
        for (double& value : mean) value *= 0.1;
        EXPECT_TRUE(close(norm.mean, mean, 1e-6));
        EXPECT_TRUE(close(norm.var, unbiased, 1e-6));
      }
    }
  }
}

TEST(BatchNorm, StatisticsSurviveALargeMean) {
  // A one-pass sum of squares in f32 has nothing left of this variance: (mean / std)^2 is 1e8.
  const Tensor x = cast_to(wave({4, 32, 32, 8}, 1e4), DType::f32);
  const Norm norm(8, DType::f32);
  const Moments moments(x);
  EXPECT_TRUE(
      close(norm(x, true), reference(x, norm, moments.mean, moments.var), 2e-3));  // f32 mean: 5e-4 off
  std::vector<double> var = norm.var.to_vector();
  for (std::size_t c = 0; c < var.size(); ++c) EXPECT_NEAR((var[c] - 0.9) * 10, moments.var[c], 1e-3);
}

TEST(BatchNorm, StatisticsOfManyRowsAreAccurate) {
  const Tensor x = cast_to(wave({131072, 16}, 2), DType::f32);
  const Norm norm(16, DType::f32);
  norm(x, true);
  const Moments moments(x);
  for (std::size_t c = 0; c < 16; ++c) {
    EXPECT_NEAR(norm.mean.to_vector()[c] * 10, moments.mean[c], 2e-6);
    EXPECT_NEAR((norm.var.to_vector()[c] - 0.9) * 10, moments.var[c] * 131072 / 131071, 2e-6);
  }
}

TEST(BatchNorm, EvaluationUsesRunningStatisticsAndLeavesThem) {
  for (const DType dtype : test::kFloating) {
    const Norm norm(6, stats_dtype(dtype));
    norm(cast_to(wave({50, 6}, 1), dtype), true);
    const std::vector<double> mean = norm.mean.to_vector(), var = norm.var.to_vector();
    const Tensor x = cast_to(wave({1, 6}), dtype);  // one value per channel is fine here
    EXPECT_TRUE(close(norm(x, false), reference(x, norm, mean, var), 4 * test::epsilon_of(dtype)));
    EXPECT_EQ(norm.mean.to_vector(), mean);
    EXPECT_EQ(norm.mean.version(), 1u);
  }
}

// As in PyTorch: what is infinite, or no number, in x or dy is so in its own place and in the sums over it.
TEST(BatchNorm, InEvaluationGradientsOfOtherElementsStayFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : test::kFloating) {
    for (const double bad : {inf, -inf, nan}) {
      for (const bool in_x : {true, false}) {
        const Norm norm(3, stats_dtype(dtype));
        std::vector<double> x = wave({40, 3}, 1).to_vector(), dy = wave({40, 3}, 0, 2).to_vector();
        (in_x ? x : dy)[7] = bad;
        const Tensor in = cast_to(Tensor::from(x, {40, 3}), dtype);
        require_grad(in);
        backward(norm(in, false), cast_to(Tensor::from(dy, {40, 3}), dtype));
        const std::vector<double> gamma = norm.gamma.to_vector(), dx = grad_of(in).to_vector(),
                                  dgamma = grad_of(norm.gamma).to_vector(),
                                  dbeta = grad_of(norm.beta).to_vector();
        for (std::size_t i = 0; i < dx.size(); ++i) {
          if (!in_x && i == 7) {
            EXPECT_FALSE(std::isfinite(dx[i]));
          } else {
            EXPECT_NEAR(dx[i], dy[i] * gamma[i % 3] / std::sqrt(1 + 1e-5), 8 * test::epsilon_of(dtype)) << i;
          }
        }
        for (std::size_t c = 0; c < 3; ++c) {
          EXPECT_EQ(std::isfinite(dgamma[c]), c != 1);
          EXPECT_EQ(std::isfinite(dbeta[c]), in_x || c != 1);
        }
      }
    }
  }
}

TEST(BatchNorm, RecomputationLeavesRunningStatistics) {
  const Norm norm(4, DType::f32);
  const Tensor x = cast_to(wave({8, 4}, 1), DType::f32);
  const Tensor first = norm(x, true);
  const std::vector<double> mean = norm.mean.to_vector();
  {
    const Recomputing again;
    EXPECT_TRUE(same_bits(norm(x, true), first));
  }
  EXPECT_EQ(norm.mean.to_vector(), mean);
  EXPECT_EQ(norm.mean.version(), 1u);
  norm(x, true);
  EXPECT_EQ(norm.mean.version(), 2u);
}

struct Outcome {
  Tensor y, dx, dresidual, dgamma, dbeta;
};

// dL/dy, but 0 where a value before relu6 may round to its upper bound in `dtype`, and not in f64: the
// derivative jumps there.
Tensor away_from_six(const Tensor& dy, const Tensor& x, const Tensor& residual, bool training, DType dtype) {
  const NoGrad no_grad;
  const Norm norm(x.dim(-1), DType::f64);
  const std::vector<double> normed = norm(cast_to(x, DType::f64), training).to_vector(),
                            added = residual.to_vector();
  std::vector<double> values = dy.to_vector();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::abs(normed[i] + added[i] - 6) <= 6 * test::epsilon_of(dtype)) values[i] = 0;
  return cast_to(Tensor::from(values, dy.shape()), dy.dtype());
}

// The fused op in `dtype`; or its parts, in f64 on the same values.
Outcome run(bool fused, DType dtype, Activation activation, bool with_residual, bool training,
            const Shape& shape) {
  const DType compute = fused ? dtype : DType::f64;
  const auto make = [&](double center, double phase) {
    return cast_to(cast_to(wave(shape, center, phase), dtype), compute);
  };
  Norm norm(shape[shape.rank() - 1], stats_dtype(dtype));
  if (!fused) {
    for (Tensor* p : {&norm.gamma, &norm.beta, &norm.mean, &norm.var}) *p = cast_to(*p, DType::f64);
    require_grad(norm.gamma);
    require_grad(norm.beta);
  }
  const Tensor x = make(0.5, 0), residual = make(0, 1);
  require_grad(x);
  require_grad(residual);
  Tensor y, dy = make(0, 4);
  if (activation == Activation::relu6)
    dy = away_from_six(dy, x, with_residual ? residual : Tensor::zeros(shape), training, dtype);
  if (fused) {
    y = norm(x, training, activation, with_residual ? residual : Tensor());
  } else {
    y = norm(x, training);
    y = activated(activation, with_residual ? y + residual : y);
  }
  backward(y, dy);
  return {y, grad_of(x), grad_of(residual), grad_of(norm.gamma), grad_of(norm.beta)};
}

TEST(BatchNorm, FusedEqualsItsPartsInF64) {
  for (const Shape& shape : {Shape{4, 5, 5, 6}, Shape{130, 33}, Shape{8, 16, 16, 64}}) {
    for (const DType dtype : test::kFloating) {
      for (const Activation activation : kActivations) {
        for (const bool residual : {false, true}) {
          for (const bool training : {true, false}) {
            const Outcome a = run(true, dtype, activation, residual, training, shape);
            const Outcome b = run(false, dtype, activation, residual, training, shape);
            const std::string name =
                fmt::format("{} {} {} {} {}", dtype, shape, static_cast<int>(activation), residual, training);
            const double tolerance = test::epsilon_of(dtype) + 32 * test::epsilon_of(stats_dtype(dtype));
            EXPECT_TRUE(close(a.y, b.y, tolerance)) << name;
            EXPECT_TRUE(close(a.dx, b.dx, tolerance)) << name;
            EXPECT_EQ(a.dresidual.defined(), residual);
            if (residual) {
              EXPECT_TRUE(close(a.dresidual, b.dresidual, tolerance)) << name;
            }
            EXPECT_TRUE(close(a.dgamma, b.dgamma, tolerance)) << name;
            EXPECT_TRUE(close(a.dbeta, b.dbeta, tolerance)) << name;
          }
        }
      }
    }
  }
}

TEST(BatchNorm, GradientOnlyWhereAskedFor) {
  const Tensor x = cast_to(wave({6, 3}), DType::f32), residual = cast_to(wave({6, 3}, 0, 1), DType::f32);
  Norm norm(3, DType::f32);
  forget_grad(norm.gamma);
  for (const Tensor& wanted : {x, residual, norm.beta}) {
    forget_grad(norm.beta);
    require_grad(wanted);
    backward(norm(x, true, Activation::relu, residual), cast_to(wave({6, 3}, 1), DType::f32));
    EXPECT_TRUE(grad_of(wanted).defined());
    forget_grad(wanted);
    require_grad(norm.beta);
  }
}

TEST(BatchNorm, ParameterGradientsGoStraightToTheirSlices) {
  const Norm norm(3, DType::f32);
  const Tensor arena = Tensor::zeros({6});
  const Tensor slice = arena.view_as_strided({3}, {1}, 2);
  leaf_of(norm.gamma).bind(slice);
  const Tensor x = cast_to(wave({6, 3}), DType::f32), dy = cast_to(wave({6, 3}, 1), DType::f32);
  backward(norm(x, true), dy);
  const std::vector<double> once = slice.to_vector();
  EXPECT_NE(once[0], 0);
  backward(norm(x, true), dy);
  for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(slice.to_vector()[c], 2 * once[c], 1e-5);
}

TEST(BatchNorm, RejectsInputsItCannotNormalize) {
  const Norm norm(3, DType::f32);
  const Tensor x = Tensor::zeros({4, 3});
  EXPECT_THROW(norm(Tensor::zeros({1, 3}), true), ArgumentError);
  EXPECT_THROW(norm(Tensor::zeros({0, 3}), true), ArgumentError);
  EXPECT_THROW(norm(Tensor::zeros({1, 1, 1, 3}), true), ArgumentError);
  EXPECT_THROW(norm(Tensor::zeros({4, 2}), true), ArgumentError);
  EXPECT_THROW(norm(Tensor::zeros({4, 3}, {DType::f64, kCpu}), true), ArgumentError);
  EXPECT_THROW(norm(x, true, Activation::none, Tensor::zeros({4, 1})), ArgumentError);
  EXPECT_THROW(batch_norm(x, {}, {}, {}, {}, false), ArgumentError);
  EXPECT_THROW(batch_norm(x, {}, {}, norm.mean, {}, true), ArgumentError);
  EXPECT_THROW(norm(Tensor::zeros({4, 3}, {DType::i32, kCpu}), true), ArgumentError);
}

TEST(BatchNorm, EmptyEvaluationBatchAndNoChannels) {
  const Norm norm(3, DType::f32);
  const Tensor x = Tensor::zeros({0, 3});
  require_grad(x);
  const Tensor y = norm(x, false, Activation::relu);
  backward(y, y.detach());
  EXPECT_EQ(grad_of(x).shape(), Shape({0, 3}));
  EXPECT_EQ(grad_of(norm.gamma).to_vector(), std::vector<double>(3, 0.0));
  EXPECT_EQ(Norm(0, DType::f32)(Tensor::zeros({4, 0}), true).shape(), Shape({4, 0}));
}

TEST(BatchNorm, ChangingRunningStatisticsDoesNotSpoilAnEarlierGraph) {
  const Norm norm(3, DType::f32);
  const Tensor x = cast_to(wave({5, 3}), DType::f32);
  require_grad(x);
  const Tensor y = norm(x, false);
  norm(cast_to(wave({5, 3}, 7), DType::f32), true);
  backward(y, cast_to(wave({5, 3}, 1), DType::f32));
  const Norm fresh(3, DType::f32);
  const Tensor gradient = grad_of(x);
  const Tensor z = Tensor::from(x.to_vector(), x.shape());
  const Tensor again = cast_to(z, DType::f32);
  require_grad(again);
  backward(fresh(again, false), cast_to(wave({5, 3}, 1), DType::f32));
  EXPECT_TRUE(same_bits(gradient, grad_of(again)));
}

TEST(BatchNorm, HalfTypesSumTheGradientThatTheyPassOn) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const Activation activation : kActivations) {
      if (activation == Activation::none) continue;
      const Outcome found = run(true, dtype, activation, true, true, {700, 5});
      std::vector<double> sums(5);
      const std::vector<double> passed = found.dresidual.to_vector();
      for (std::size_t i = 0; i < passed.size(); ++i) sums[i % 5] += passed[i];
      EXPECT_TRUE(close(found.dbeta, sums, 1e-6)) << name_of(dtype) << static_cast<int>(activation);
    }
  }
}

}  // namespace athanor::norm_test
