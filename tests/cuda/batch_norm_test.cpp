#include "kernels/activate.h"
#include "kernels/cpu/context.h"
#include "kernels/norm.h"
#include "tests/cuda/ops.h"
#include "tests/support/activations.h"

namespace athanor::batch_norm_test {

using test::context;
using BatchNormOnDevice = test::DeviceTest;
using kernels::BatchNormBackward;
using kernels::RunningStats;
using test::close;
using test::filled;
using test::Layout;

using test::kActivations;

// One channel, odd ones, vectors, several tiles; few rows and several shares; off alignment.
const test::ShapeCase kShapes[] = {{{2, 1}},
                                   {{700, 3}},
                                   {{33, 8}},
                                   {{2, 5, 7, 16}},
                                   {{300, 24}},
                                   {{37, 100}},
                                   {{9, 257}},
                                   {{19, 520}},
                                   {{4500, 8}},
                                   {{41, 16}, Layout::misaligned},
                                   {{5, 7}, Layout::misaligned}};

Tensor on_device(const Tensor& x) {
  return x.defined() ? test::on_device_like(x) : Tensor();
}
// An element rounded once, from values that differ as sums of another order do.
double tolerance(DType dtype) {
  return 2 * test::epsilon_of(dtype) + 64 * test::epsilon_of(test::wide_dtype(dtype));
}
double sum_tolerance(DType dtype) {
  return 256 * test::epsilon_of(test::wide_dtype(dtype));
}
/// Of gradients: what is summed has the error of kernels/cuda/gelu.h there and, with a residual, is rounded.
double sum_tolerance(DType dtype, Activation activation) {
  return activation == Activation::gelu && is_half(dtype) ? test::epsilon_of(dtype) : sum_tolerance(dtype);
}

struct Case {
  Tensor x, gamma, beta, residual, dy, stats;

  Case(const test::ShapeCase& wanted, DType dtype, double center = 0.5)
      : x(filled(wanted, dtype, {1}, center - 2, center + 2)),
        gamma(filled({{x.dim(-1)}}, test::wide_dtype(dtype), {2}, 0.5, 1.5)),
        beta(filled({{x.dim(-1)}}, test::wide_dtype(dtype), {3})),
        residual(filled(wanted, dtype, {4})),
        dy(filled(wanted, dtype, {5})),
        stats(Tensor::empty({2, x.dim(-1)}, {test::wide_dtype(dtype), kCpu})) {
    kernels::batch_norm_statistics(cpu_context(), x, 1e-5, stats, {});
  }
};

TEST_F(BatchNormOnDevice, StatisticsEqualCpu) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, wanted.shape));
      const Case c(wanted, dtype, 3);
      test::expect_as_on_cpu(
          [&](const auto& on) {
            const Tensor zero = Tensor::zeros({c.x.dim(-1)}, c.stats.options());
            const Tensor mean = on(clone(zero)), var = on(clone(zero)), stats = on(c.stats);
            kernels::batch_norm_statistics(on.context, on(c.x), 1e-5, stats, {mean, var, 0.25});
            return std::vector{stats, mean, var};
          },
          {sum_tolerance(dtype)});
    }
  }
}

TEST_F(BatchNormOnDevice, StatisticsByHand) {
  const Tensor x = Tensor::from(std::vector<float>{1, 10, 3, 10, 5, 16, 7, 20}, {4, 2}, test::device());
  const Tensor stats = Tensor::empty({2, 2}, {DType::f32, test::device()});
  const Tensor mean = Tensor::from(std::vector<float>{0, 2}, {2}, test::device());
  const Tensor var = Tensor::from(std::vector<float>{1, 1}, {2}, test::device());
  kernels::batch_norm_statistics(context(), x, 0, stats, {mean, var, 0.5});
  EXPECT_TRUE(
      close(stats.to(kCpu), std::vector<double>{4, 14, 1 / std::sqrt(5.0), 1 / std::sqrt(18.0)}, 1e-6));
  EXPECT_TRUE(close(mean.to(kCpu), std::vector<double>{2, 8}, 1e-6));
  EXPECT_TRUE(close(var.to(kCpu), std::vector<double>{0.5 + 20.0 / 6, 0.5 + 12}, 1e-6));
  kernels::batch_norm_fixed(context(), {mean, var}, 0.5, stats);
  EXPECT_TRUE(close(stats.to(kCpu),
                    std::vector<double>{2, 8, 1 / std::sqrt(1 + 20.0 / 6), 1 / std::sqrt(13.0)}, 1e-6));
}

TEST_F(BatchNormOnDevice, StatisticsSurviveALargeMean) {
  const Case c({{3000, 8}}, DType::f32, 10000);
  const Tensor stats = Tensor::empty({2, 8}, {DType::f32, test::device()});
  kernels::batch_norm_statistics(context(), on_device(c.x), 0, stats, {});
  const std::vector<double> values = c.x.to_vector(), found = stats.to(kCpu).to_vector();
  for (std::size_t channel = 0; channel < 8; ++channel) {
    double mean = 0, square = 0;
    for (std::size_t i = channel; i < values.size(); i += 8) mean += values[i] / 3000;
    for (std::size_t i = channel; i < values.size(); i += 8) square += std::pow(values[i] - mean, 2) / 3000;
    EXPECT_NEAR(found[channel], mean, 1e-3);
    EXPECT_NEAR(found[8 + channel], 1 / std::sqrt(square), 1e-5);
  }
}

TEST_F(BatchNormOnDevice, ForwardEqualsCpu) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : kShapes) {
      const Case c(wanted, dtype);
      for (const Activation activation : kActivations) {
        for (const bool bare : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", dtype, wanted.shape, static_cast<int>(activation), bare));
          test::expect_as_on_cpu(
              [&](const auto& on) {
                const Tensor y = on(test::make(wanted, dtype)), none;
                kernels::batch_norm_forward(on.context, activation, on(c.x), bare ? none : on(c.gamma),
                                            bare ? none : on(c.beta), on(c.stats),
                                            bare ? none : on(c.residual), y);
                return std::vector{y};
              },
              {2 * test::epsilon_of(dtype)});
        }
      }
    }
  }
}

// What a backward pass writes.
struct Gradients {
  Tensor dx, dgamma, dbeta, dresidual;
};

enum class Which : std::uint8_t { all, parameters, input };

Gradients backward(const Case& c, Activation activation, bool residual, bool training, Which which,
                   Device device) {
  const auto there = [&](const Tensor& t) { return device.is_cpu() ? t : on_device(t); };
  BatchNormBackward args;
  args.activation = activation;
  args.training = training;
  args.x = there(c.x);
  args.gamma = there(c.gamma);
  args.beta = there(c.beta);
  args.stats = there(c.stats);
  args.dy = there(c.dy);
  if (residual && activation != Activation::none) {
    Tensor y = c.residual;
    if (kernels::gradient_from_output(activation)) {
      y = empty_like(c.x);
      kernels::batch_norm_forward(cpu_context(), activation, c.x, c.gamma, c.beta, c.stats, c.residual, y);
    }
    args.extra = there(y);
    args.dresidual = empty_like(args.x);
  }
  if (which != Which::parameters) args.dx = empty_like(args.x);
  if (which != Which::input) {
    args.dgamma = {empty_like(args.gamma), Write::overwrite};
    args.dbeta = {there(filled({c.beta.shape()}, c.beta.dtype(), {9})), Write::accumulate};
  }
  athanor::on_device(device, [&](auto& context) { kernels::batch_norm_backward(context, args); });
  return {args.dx, args.dgamma.tensor, args.dbeta.tensor, args.dresidual};
}

void expect_close(const Tensor& on_device, const Tensor& reference, double tolerance) {
  ASSERT_EQ(on_device.defined(), reference.defined());
  if (reference.defined()) {
    EXPECT_TRUE(close(on_device.to(kCpu), reference, tolerance));
  }
}

TEST_F(BatchNormOnDevice, BackwardEqualsCpu) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : kShapes) {
      const Case c(wanted, dtype);
      for (const Activation activation : kActivations) {
        for (const bool residual : {false, true}) {
          SCOPED_TRACE(
              fmt::format("{} {} {} {}", dtype, wanted.shape, static_cast<int>(activation), residual));
          const Which which = c.x.dim(-1) == 3 ? Which::parameters : Which::all;
          const bool training = c.x.dim(-1) != 100;
          const Gradients expected = backward(c, activation, residual, training, which, kCpu);
          const Gradients found = backward(c, activation, residual, training, which, test::device());
          expect_close(found.dx, expected.dx, tolerance(dtype));
          expect_close(found.dgamma, expected.dgamma, sum_tolerance(dtype, activation));
          expect_close(found.dbeta, expected.dbeta, sum_tolerance(dtype, activation));
          expect_close(found.dresidual, expected.dresidual, tolerance(dtype));
        }
      }
    }
  }
}

// The statistics, the running ones and y of one call are those of two.
TEST_F(BatchNormOnDevice, TrainingEqualsStatisticsThenForward) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, wanted.shape));
      const Case c(wanted, dtype, 3);
      const TensorOptions options{c.stats.dtype(), test::device()};
      const Shape channels{c.x.dim(-1)};
      kernels::BatchNormTraining args;
      args.activation = Activation::relu;
      args.x = on_device(c.x), args.gamma = on_device(c.gamma), args.beta = on_device(c.beta);
      args.residual = on_device(c.residual);
      args.eps = 1e-5;
      args.running = {ones(channels, options), Tensor::zeros(channels, options), 0.25};
      args.stats = Tensor::empty({2, channels[0]}, options), args.y = empty_like(args.x);
      const kernels::RunningStats running{ones(channels, options), Tensor::zeros(channels, options), 0.25};
      const Tensor stats = empty_like(args.stats), y = empty_like(args.x);
      kernels::batch_norm_statistics(context(), args.x, args.eps, stats, running);
      kernels::batch_norm_forward(context(), args.activation, args.x, args.gamma, args.beta, stats,
                                  args.residual, y);
      kernels::batch_norm_training(context(), args);
      EXPECT_TRUE(test::same_bits(args.stats.to(kCpu), stats.to(kCpu)));
      EXPECT_TRUE(test::same_bits(args.y.to(kCpu), y.to(kCpu)));
      EXPECT_TRUE(test::same_bits(args.running.mean.to(kCpu), running.mean.to(kCpu)));
      EXPECT_TRUE(test::same_bits(args.running.var.to(kCpu), running.var.to(kCpu)));
    }
  }
}

// A bit for each element in the place of y changes no bit of any gradient: of values above and below zero, of
// zeros of both signs, of what rounds to zero, of infinities and NaN.
TEST_F(BatchNormOnDevice, MaskStandsForTheResult) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : kShapes) {
      if (wanted.shape[wanted.shape.rank() - 1] % 8 != 0) continue;
      SCOPED_TRACE(fmt::format("{} {}", dtype, wanted.shape));
      Case c(wanted, dtype, 0);
      c.gamma = Tensor::zeros(c.gamma.shape(), c.gamma.options());  // y is that of the residual
      c.beta = Tensor::zeros(c.beta.shape(), c.beta.options());
      const double special[] = {0.0, -0.0, 1e-40, -1e-40, 1e-7, INFINITY, -INFINITY, NAN};
      for (std::int64_t i = 0; i < 8; ++i)
        kernels::fill(cpu_context(), narrow(narrow(reshape(c.residual, {-1, c.x.dim(-1)}), 0, 1, 1), 1, i, 1),
                      special[i]);
      const std::int64_t bytes = kernels::batch_norm_mask_bytes(context(), Activation::relu, c.x);
      ASSERT_EQ(bytes, c.x.numel() / 8);
      BatchNormBackward args;
      args.activation = Activation::relu;
      args.x = on_device(c.x), args.gamma = on_device(c.gamma), args.beta = on_device(c.beta);
      args.stats = on_device(c.stats), args.dy = on_device(c.dy);
      const Tensor residual = on_device(c.residual), y = empty_like(args.x),
                   mask = Tensor::empty({bytes}, {DType::u8, test::device()});
      kernels::batch_norm_forward(context(), args.activation, args.x, args.gamma, args.beta, args.stats,
                                  residual, y, mask);
      const std::vector<double> bits = mask.to(kCpu).to_vector(), values = y.to(kCpu).to_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool passes = (static_cast<unsigned>(bits[i / 8]) >> (i % 8) & 1u) != 0;
        ASSERT_EQ(passes, !(values[i] <= 0)) << i << ": " << values[i];
      }
      std::vector<Tensor> results[2];
      for (const bool by_mask : {false, true}) {
        args.extra = by_mask ? mask : y;
        args.dx = empty_like(args.x), args.dresidual = empty_like(args.x);
        args.dgamma = {empty_like(args.gamma)}, args.dbeta = {empty_like(args.beta)};
        kernels::batch_norm_backward(context(), args);
        results[by_mask] = {args.dx, args.dresidual, args.dgamma.tensor, args.dbeta.tensor};
      }
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_TRUE(test::same_bits(results[0][i].to(kCpu), results[1][i].to(kCpu))) << i;
    }
  }
}

// Where no dx is needed, another kernel finishes the sums.
TEST_F(BatchNormOnDevice, ParametersGetTheSameBitsWithoutDx) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const auto& wanted : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, wanted.shape));
      const Case c(wanted, dtype);
      const Gradients all = backward(c, Activation::relu, false, true, Which::all, test::device());
      const Gradients alone = backward(c, Activation::relu, false, true, Which::parameters, test::device());
      EXPECT_TRUE(test::same_bits(all.dgamma.to(kCpu), alone.dgamma.to(kCpu)));
      EXPECT_TRUE(test::same_bits(all.dbeta.to(kCpu), alone.dbeta.to(kCpu)));
    }
  }
}

TEST_F(BatchNormOnDevice, InEvaluationAnInfinityStaysInItsPlace) {
  for (const DType dtype : test::kFloating) {
    for (const bool in_x : {true, false}) {
      const Case c({{40, 16}}, dtype);
      const Tensor& spoilt = in_x ? c.x : c.dy;
      kernels::fill(cpu_context(), narrow(narrow(spoilt, 0, 3, 1), 1, 5, 1), INFINITY);
      const Gradients found = backward(c, Activation::none, false, false, Which::all, test::device());
      const std::vector<double> dx = found.dx.to_vector(), dgamma = found.dgamma.to_vector();
      for (std::size_t i = 0; i < dx.size(); ++i)
        EXPECT_EQ(std::isfinite(dx[i]), in_x || i != 3 * 16 + 5) << name_of(dtype) << " " << i;
      for (std::size_t i = 0; i < dgamma.size(); ++i) EXPECT_EQ(std::isfinite(dgamma[i]), i != 5);
    }
  }
}

TEST_F(BatchNormOnDevice, BackwardOfFrozenParametersWritesDxAlone) {
  const Case c({{21, 16}}, DType::f16);
  const Gradients expected = backward(c, Activation::relu, true, true, Which::input, kCpu);
  const Gradients found = backward(c, Activation::relu, true, true, Which::input, test::device());
  expect_close(found.dx, expected.dx, tolerance(DType::f16));
  expect_close(found.dgamma, expected.dgamma, 0);
}

// Three ranks with a part of the rows each, one with none, joined: what one rank with all of them gets.
TEST_F(BatchNormOnDevice, JoinedPartsEqualTheWhole) {
  constexpr std::int64_t kRows = 300, kChannels = 24, kBegin[] = {0, 7, 7, kRows};
  for (const DType dtype : test::kFloating) {
    const Case c({{kRows, kChannels}}, dtype, 3);
    const auto part = [&](const Tensor& x, int rank) {
      const std::int64_t rows = kBegin[rank + 1] - kBegin[rank];
      const Tensor mine = x.view_as_strided({rows, kChannels}, {kChannels, 1}, kBegin[rank] * kChannels);
      const Tensor copy = Tensor::empty({rows, kChannels}, {dtype, kCpu});
      copy.copy_bytes_from(mine);
      return on_device(copy);
    };
    const TensorOptions options{c.stats.dtype(), test::device()};
    const auto row_of = [&](const Tensor& rows, int rank) {
      return rows.view_as_strided({1 + 2 * kChannels}, {1}, rank * (1 + 2 * kChannels));
    };
    const Tensor rows = Tensor::empty({3, 1 + 2 * kChannels}, {DType::f64, test::device()});
    const Tensor stats = Tensor::empty({2, kChannels}, options);
    const RunningStats whole{Tensor::zeros({kChannels}), Tensor::zeros({kChannels}), 0.25},
        joined{Tensor::zeros({kChannels}, options), Tensor::zeros({kChannels}, options), 0.25};
    for (int rank = 0; rank < 3; ++rank)
      kernels::batch_norm_moments(context(), part(c.x, rank), row_of(rows, rank));
    kernels::batch_norm_join(context(), rows, 1e-5, stats, joined);
    EXPECT_TRUE(close(stats.to(kCpu), c.stats, sum_tolerance(dtype)));
    if (dtype != DType::f64) {
      kernels::batch_norm_statistics(cpu_context(), c.x, 1e-5, c.stats, whole);
      EXPECT_TRUE(close(joined.mean.to(kCpu), whole.mean, sum_tolerance(dtype)));
      EXPECT_TRUE(close(joined.var.to(kCpu), whole.var, sum_tolerance(dtype)));
    }
    for (const Activation activation : kActivations) {
      for (const bool residual : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype, static_cast<int>(activation), residual));
        const Gradients expected = backward(c, activation, residual, true, Which::all, kCpu);
        const bool mixes = residual && activation != Activation::none;
        std::vector<BatchNormBackward> ranks(3);
        for (int rank = 0; rank < 3; ++rank) {
          BatchNormBackward& args = ranks[static_cast<std::size_t>(rank)];
          args.activation = activation;
          args.x = part(c.x, rank);
          args.gamma = on_device(c.gamma);
          args.beta = on_device(c.beta);
          args.stats = on_device(c.stats);
          args.dy = part(c.dy, rank);
          args.dx = empty_like(args.x);
          args.dgamma = {empty_like(args.gamma), Write::overwrite};
          args.dbeta = {empty_like(args.beta), Write::overwrite};
          if (mixes) {
            args.extra = part(c.residual, rank);
            if (kernels::gradient_from_output(activation)) {
              const Tensor y = empty_like(args.x);
              kernels::batch_norm_forward(context(), activation, args.x, args.gamma, args.beta, args.stats,
                                          args.extra, y);
              args.extra = y;
            }
            args.dresidual = empty_like(args.x);
          }
          kernels::batch_norm_backward_sums(context(), args, row_of(rows, rank));
        }
        std::vector<double> dx, dgamma(kChannels), dbeta(kChannels);
        for (const BatchNormBackward& args : ranks) {
          kernels::batch_norm_backward_join(context(), args, rows);
          for (const double value : args.dx.to(kCpu).to_vector()) dx.push_back(value);
          for (std::size_t i = 0; i < kChannels; ++i) {
            dgamma[i] += args.dgamma.tensor.to(kCpu).to_vector()[i];
            dbeta[i] += args.dbeta.tensor.to(kCpu).to_vector()[i];
          }
        }
        EXPECT_TRUE(close(Tensor::from(dx, {kRows, kChannels}), expected.dx.to_vector(), tolerance(dtype)));
        EXPECT_TRUE(close(expected.dgamma, dgamma, sum_tolerance(dtype, activation)));
        const std::vector<double> before = filled({c.beta.shape()}, c.beta.dtype(), {9}).to_vector();
        for (std::size_t i = 0; i < kChannels; ++i) dbeta[i] += before[i];  // of backward(), which adds
        EXPECT_TRUE(close(expected.dbeta, dbeta, sum_tolerance(dtype, activation)));
      }
    }
  }
}

TEST_F(BatchNormOnDevice, EmptyBatchHasNoGradients) {
  Case c({{2, 8}}, DType::f32);
  c.x = c.dy = c.residual = Tensor::empty({0, 8}, {DType::f32, kCpu});
  const Gradients found = backward(c, Activation::relu, false, false, Which::all, test::device());
  EXPECT_EQ(found.dgamma.to(kCpu).to_vector(), std::vector<double>(8, 0.0));
  EXPECT_EQ(found.dbeta.to(kCpu).to_vector(), filled({{8}}, DType::f32, {9}).to_vector());
}

TEST_F(BatchNormOnDevice, RepeatsItselfBitForBit) {
  const Case c({{5000, 24}}, DType::bf16);
  const Tensor first = Tensor::empty(c.stats.shape(), {DType::f32, test::device()}),
               second = empty_like(first);
  kernels::batch_norm_statistics(context(), on_device(c.x), 1e-5, first, {});
  kernels::batch_norm_statistics(context(), on_device(c.x), 1e-5, second, {});
  EXPECT_TRUE(test::same_bits(first.to(kCpu), second.to(kCpu)));
}

}  // namespace athanor::batch_norm_test
