#include "tests/support/ops.h"

namespace athanor::loss_test {

using test::close;
using test::same_bits;

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

// One pass over the logits gives both; the mean has the gradient, and the losses have none.
TEST(CrossEntropy, TheLossOfEachSampleComesWithTheMean) {
  for (const DType dtype : test::kFloating) {
    for (const float smoothing : {0.0f, 0.2f}) {
      const Tensor x = test::leaf_like(wave({37, 11}), dtype), z = test::leaf_like(x, dtype),
                   t = cycling_labels(37, 11);
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

TEST(CrossEntropy, LargeLogitsNeitherOverflowNorLoseTheGradient) {
  const Tensor x = Tensor::from(std::vector<float>{30000, 30001, -30000}, {1, 3});
  require_grad(x);
  const Tensor loss = cross_entropy(x, labels({0}));
  EXPECT_NEAR(loss.item(), 1 + std::log1p(std::exp(-1.0)), 1e-6);
  backward(loss);
  const double p = 1 / (1 + std::exp(1.0));
  EXPECT_TRUE(close(grad_of(x), std::vector<double>{p - 1, 1 - p, 0}, 1e-6));
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

}  // namespace athanor::loss_test
