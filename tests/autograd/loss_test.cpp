#include "autograd/loss.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "kernels/copy.h"
#include "tests/support/compare.h"

namespace athanor::loss_test {

using test::close;
using test::same_bits;

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};

Tensor cast_to(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.shape(), {dtype, kCpu});
  kernels::copy(cpu_context(), x, y);
  return y;
}

// Deterministic values in (-2, 2), no two near ones alike.
Tensor wave(const Shape& shape, double phase = 0) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 2 * std::sin(1.7 * static_cast<double>(i) + phase);
  return Tensor::from(values, shape);
}

Tensor labels(std::vector<std::int64_t> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {n});
}
Tensor cycling_labels(std::int64_t n, std::int64_t classes) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back((3 * i + 1) % classes);
  return labels(values);
}

// -sum_c q_c log softmax(x)_c, q the smoothed one-hot distribution, in double.
std::vector<double> reference(const Tensor& logits, const Tensor& target, double smoothing) {
  const std::vector<double> x = logits.to_vector(), t = target.to_vector();
  const auto classes = static_cast<std::size_t>(logits.dim(1));
  std::vector<double> losses;
  for (std::size_t n = 0; n < t.size(); ++n) {
    const double* row = x.data() + n * classes;
    double max = row[0], sum = 0, loss = 0;
    for (std::size_t c = 0; c < classes; ++c) max = std::max(max, row[c]);
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - max);
    for (std::size_t c = 0; c < classes; ++c) {
      const double q =
          smoothing / static_cast<double>(classes) + (static_cast<double>(c) == t[n] ? 1 - smoothing : 0);
      loss -= q * (row[c] - max - std::log(sum));
    }
    losses.push_back(loss);
  }
  return losses;
}

double total(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

TEST(CrossEntropy, ValuesWorkedOutByHand) {
  // Equal logits: log(4) whatever the target and the smoothing.
  const Tensor flat = Tensor::from(std::vector<float>{7, 7, 7, 7}, {1, 4});
  EXPECT_NEAR(cross_entropy(flat, labels({2})).item(), std::log(4.0), 1e-6);
  EXPECT_NEAR(cross_entropy(flat, labels({2}), 0.3f).item(), std::log(4.0), 1e-6);
  // Logits log(1), log(3): probabilities 1/4, 3/4.
  const Tensor x = Tensor::from(std::vector<double>{0, std::log(3.0)}, {1, 2});
  require_grad(x);
  const Tensor loss = cross_entropy(x, labels({0}), 0.2f);  // q = 0.9, 0.1
  EXPECT_NEAR(loss.item(), -0.9 * std::log(0.25) - 0.1 * std::log(0.75), 1e-8);
  backward(loss);
  EXPECT_TRUE(close(grad_of(x), std::vector<double>{0.25 - 0.9, 0.75 - 0.1}, 1e-7));
}

TEST(CrossEntropy, ForwardMatchesDoubleReference) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t classes : {1, 2, 10, 16, 17, 1000}) {
      for (const float smoothing : {0.0f, 0.1f}) {
        const std::int64_t rows = 9;
        const Tensor x = cast_to(wave({rows, classes}), dtype), t = cycling_labels(rows, classes);
        const std::vector<double> losses = reference(x, t, smoothing);
        const double tolerance = dtype == DType::f64 ? 1e-13 : 2e-6;
        const Tensor none = cross_entropy(x, t, smoothing, Reduction::none);
        EXPECT_EQ(none.dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
        EXPECT_EQ(none.shape(), Shape({rows}));
        for (std::size_t i = 0; i < losses.size(); ++i)
          EXPECT_NEAR(none.to_vector()[i], losses[i], tolerance * 4) << name_of(dtype) << " " << classes;
        const double sum = cross_entropy(x, t, smoothing, Reduction::sum).item();
        EXPECT_NEAR(sum, total(losses), tolerance * 20) << name_of(dtype) << " " << classes;
        EXPECT_NEAR(cross_entropy(x, t, smoothing).item(), sum / rows, 1e-6);
      }
    }
  }
}

// One pass over the logits gives both; the mean has the gradient, and the losses have none.
TEST(CrossEntropy, TheLossOfEachSampleComesWithTheMean) {
  for (const DType dtype : kFloating) {
    for (const float smoothing : {0.0f, 0.2f}) {
      const Tensor x = cast_to(wave({37, 11}), dtype), z = cast_to(x, dtype), t = cycling_labels(37, 11);
      require_grad(x);
      require_grad(z);
      const CrossEntropy both = cross_entropy_of_each(x, t, smoothing);
      const Tensor mean = cross_entropy(z, t, smoothing);
      EXPECT_TRUE(same_bits(both.mean.detach(), mean.detach()));
      EXPECT_TRUE(same_bits(both.losses, cross_entropy(z.detach(), t, smoothing, Reduction::none)));
      EXPECT_FALSE(both.losses.requires_grad());
      backward(both.mean);
      backward(mean);
      EXPECT_TRUE(same_bits(grad_of(x), grad_of(z)));
    }
  }
}

TEST(CrossEntropy, BackwardMatchesF64InEveryDtype) {
  for (const DType dtype : kFloating) {
    const Tensor x = cast_to(wave({5, 37}), dtype), t = cycling_labels(5, 37);
    const Tensor exact = cast_to(x, DType::f64);
    require_grad(x);
    require_grad(exact);
    backward(cross_entropy(x, t, 0.1f));
    backward(cross_entropy(exact, t, 0.1f));
    EXPECT_EQ(grad_of(x).dtype(), dtype);
    EXPECT_TRUE(close(grad_of(x), grad_of(exact), 2 * test::epsilon_of(dtype))) << name_of(dtype);
  }
}

TEST(CrossEntropy, Gradcheck) {
  const Tensor t = cycling_labels(4, 19);
  for (const Reduction reduction : kReductions) {
    for (const float smoothing : {0.0f, 0.25f}) {
      const Tensor x = wave({4, 19});
      require_grad(x);
      gradcheck([&](std::span<const Tensor> in) { return cross_entropy(in[0], t, smoothing, reduction); },
                std::array{x});
    }
  }
}

TEST(CrossEntropy, LargeLogitsNeitherOverflowNorLoseTheGradient) {
  const Tensor x = Tensor::from(std::vector<float>{30000, 30001, -30000}, {1, 3});
  require_grad(x);
  const Tensor loss = cross_entropy(x, labels({0}));
  EXPECT_NEAR(loss.item(), 1 + std::log1p(std::exp(-1.0)), 1e-6);
  backward(loss);
  const double p = 1 / (1 + std::exp(1.0));
  EXPECT_TRUE(close(grad_of(x), std::vector<double>{p - 1, 1 - p, 0}, 1e-6));
}

TEST(CrossEntropy, StridedLogitsTargetAndGradientAreRead) {
  const Tensor base = wave({3, 4});
  const Tensor transposed = base.view_as_strided({4, 3}, {1, 4}, 0);
  const Tensor t = labels({0, 9, 1, 9, 2, 9, 0, 9});
  const Tensor every_other = t.view_as_strided({4}, {2}, 0);
  require_grad(transposed);
  const Tensor loss = cross_entropy(transposed, every_other, 0, Reduction::none);
  EXPECT_TRUE(close(loss, reference(transposed, every_other, 0), 1e-13));
  const Tensor one = Tensor::from(std::vector<double>{0.5}, {1});
  backward(loss, one.view_as_strided({4}, {0}, 0));
  const Tensor dense_x = Tensor::from(transposed.to_vector(), {4, 3});
  require_grad(dense_x);
  backward(cross_entropy(dense_x, every_other, 0, Reduction::none),
           Tensor::from(std::vector<double>(4, 0.5), {4}));
  EXPECT_TRUE(close(grad_of(transposed), grad_of(dense_x), 1e-14));
}

TEST(CrossEntropy, EmptyBatch) {
  const Tensor x = Tensor::zeros({0, 3}), t = labels({});
  require_grad(x);
  EXPECT_TRUE(std::isnan(cross_entropy(x, t).item()));
  EXPECT_EQ(cross_entropy(x, t, 0, Reduction::sum).item(), 0);
  EXPECT_EQ(cross_entropy(x, t, 0, Reduction::none).numel(), 0);
  backward(cross_entropy(x, t, 0, Reduction::sum));
  EXPECT_EQ(grad_of(x).shape(), Shape({0, 3}));
}

TEST(CrossEntropy, RejectsInvalidInputs) {
  const Tensor x = wave({2, 3});
  EXPECT_THROW(cross_entropy(x, labels({0, 3})), ArgumentError);
  EXPECT_THROW(cross_entropy(x, labels({-1, 0})), ArgumentError);
  EXPECT_THROW(cross_entropy(x, labels({0})), ArgumentError);
  EXPECT_THROW(cross_entropy(x, Tensor::zeros({2})), ArgumentError);
  EXPECT_THROW(cross_entropy(wave({6}), labels({0})), ArgumentError);
  EXPECT_THROW(cross_entropy(Tensor::zeros({2, 0}), labels({0, 0})), ArgumentError);
  EXPECT_THROW(cross_entropy(x, labels({0, 1}), 1.5f), ArgumentError);
  EXPECT_THROW(cross_entropy(x, Tensor()), ArgumentError);
}

TEST(CrossEntropy, WaitsForNoDeviceAndRepeatsItsBits) {
  const Tensor x = cast_to(wave({256, 100}), DType::f32), t = cycling_labels(256, 100);
  require_grad(x);
  const ForbidSync forbid;
  const int threads = cpu_context().threads();
  const Tensor first = cross_entropy(x, t, 0.1f);
  backward(first);
  const Tensor gradient = grad_of(x);
  zero_grad(x);
  cpu_context().set_threads(1);
  const Tensor second = cross_entropy(x, t, 0.1f);
  cpu_context().set_threads(threads);
  EXPECT_TRUE(same_bits(first, second));
}

TEST(NllLoss, PicksTheTargetAndSpreadsNothing) {
  const Tensor x = Tensor::from(std::vector<float>{-1, -2, -3, -4, -5, -6}, {2, 3});
  require_grad(x);
  EXPECT_EQ(nll_loss(x, labels({2, 0}), Reduction::none).to_vector(), (std::vector<double>{3, 4}));
  EXPECT_EQ(nll_loss(x, labels({2, 0}), Reduction::sum).item(), 7);
  const Tensor loss = nll_loss(x, labels({2, 0}));
  EXPECT_EQ(loss.item(), 3.5);
  backward(loss);
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 0, -0.5, -0.5, 0, 0}));
  EXPECT_THROW(nll_loss(x, labels({3, 0})), ArgumentError);
}

TEST(NllLoss, Gradcheck) {
  const Tensor t = cycling_labels(3, 5);
  for (const Reduction reduction : kReductions) {
    const Tensor x = wave({3, 5});
    require_grad(x);
    gradcheck([&](std::span<const Tensor> in) { return nll_loss(in[0], t, reduction); }, std::array{x});
  }
}

TEST(MseLoss, ValuesWorkedOutByHand) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 5}, {2, 2});
  const Tensor b = Tensor::from(std::vector<float>{1, 0, 4, 1}, {2, 2});
  require_grad(a);
  require_grad(b);
  EXPECT_EQ(mse_loss(a, b, Reduction::none).to_vector(), (std::vector<double>{0, 4, 1, 16}));
  EXPECT_EQ(mse_loss(a, b, Reduction::sum).item(), 21);
  const Tensor loss = mse_loss(a, b);
  EXPECT_EQ(loss.item(), 5.25);
  backward(loss);
  EXPECT_EQ(grad_of(a).to_vector(), (std::vector<double>{0, 1, -0.5, 2}));
  EXPECT_EQ(grad_of(b).to_vector(), (std::vector<double>{0, -1, 0.5, -2}));
}

TEST(MseLoss, Gradcheck) {
  for (const Reduction reduction : kReductions) {
    const Tensor a = wave({3, 7}), b = wave({7, 3}, 1).view_as_strided({3, 7}, {1, 3}, 0);
    require_grad(a);
    require_grad(b);
    gradcheck([&](std::span<const Tensor> in) { return mse_loss(in[0], in[1], reduction); },
              std::array{a, b});
  }
}

TEST(MseLoss, SumsManyElementsAccuratelyInEveryDtype) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t n : {0, 1, 15, 4096, 4097, 100003}) {
      const Tensor a = cast_to(wave({n}), dtype), b = cast_to(wave({n}, 2), dtype);
      const std::vector<double> x = a.to_vector(), y = b.to_vector();
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
      EXPECT_NEAR(mse_loss(a, b, Reduction::sum).item(), sum,
                  (dtype == DType::f64 ? 1e-12 : 6e-7) * (1 + sum))
          << name_of(dtype) << " " << n;
    }
  }
  EXPECT_THROW(mse_loss(wave({2}), wave({3})), ArgumentError);
  EXPECT_THROW(mse_loss(wave({2}), cast_to(wave({2}), DType::f32)), ArgumentError);
}

TEST(MseLoss, OneTensorAsBothInputsHasNoGradient) {
  const Tensor a = wave({4});
  require_grad(a);
  backward(mse_loss(a, a));
  EXPECT_EQ(grad_of(a).to_vector(), std::vector<double>(4, 0.0));
}

}  // namespace athanor::loss_test
