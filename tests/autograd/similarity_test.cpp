#include "autograd/similarity.h"

#include "autograd/attention.h"
#include "autograd/interpolate.h"
#include "nn/loss.h"
#include "tests/support/count_new.h"
#include "tests/support/ops.h"

namespace athanor::similarity_test {

using test::close;

Tensor values(const Shape& shape, std::uint64_t key, DType dtype = DType::f64) {
  return test::filled({shape}, dtype, {key}, -2, 2);
}

// As PyTorch: nothing is like a zero vector, and its gradient is that of a vector of length eps.
TEST(CosineSimilarity, ZeroVectorsHaveAFiniteGradient) {
  const Tensor zero = Tensor::zeros({1, 3}), b = Tensor::from(std::vector<float>{1, 1, 1}, {1, 3});
  require_grad(zero);
  require_grad(b);
  const Tensor y = cosine_similarity(zero, b);
  EXPECT_EQ(y.item(), 0);
  backward(y, Tensor::from(std::vector<float>{1}, {1}));
  EXPECT_TRUE(close(grad_of(zero), std::vector<double>(3, 57735028), 1e-6));
  EXPECT_EQ(grad_of(b).to_vector(), (std::vector<double>{0, 0, 0}));
}

TEST(CosineSimilarity, LargeHalfValuesDoNotOverflow) {
  const Tensor a = Tensor::from(std::vector<float>{30000, 30000, 0, 60000}, {2, 2});
  const Tensor b = Tensor::from(std::vector<float>{30000, 0, 100, 0}, {2, 2});
  const Tensor y = cosine_similarity(cast(a, DType::f16), cast(b, DType::f16));
  EXPECT_TRUE(close(y, std::vector<double>{std::sqrt(0.5), 0}, test::epsilon_of(DType::f16)));
}

TEST(CosineSimilarity, OfNothing) {
  EXPECT_EQ(cosine_similarity(Tensor::zeros({0, 3}), Tensor::zeros({0, 3})).shape(), Shape({0}));
  EXPECT_EQ(cosine_similarity(Tensor::zeros({3, 0}), Tensor::zeros({3, 0})).to_vector(),
            (std::vector<double>{0, 0, 0}));
}

TEST(CosineSimilarity, HoldsForAnyLengthAndEps) {
  const auto rows = [](float x, float y) { return Tensor::from(std::vector<float>{x, y}, {1, 2}); };
  EXPECT_EQ(cosine_similarity(rows(0, 0), rows(1, 1), 1, 1e-30).item(), 0);
  for (const float size : {1e-20f, 1e-10f, 1e20f, 1e38f}) {
    EXPECT_NEAR(cosine_similarity(rows(size, size), rows(0, size), 1, 1e-30).item(), std::sqrt(0.5), 1e-7)
        << size;
  }
}

TEST(TripletMarginLoss, EqualVectorsHaveAFiniteGradient) {
  for (const double eps : {0.0, 1e-6}) {
    const Tensor a = Tensor::zeros({2, 3}), n = Tensor::from(std::vector<float>{1, 1, 1, 0, 0, 0}, {2, 3});
    require_grad(a);
    require_grad(n);
    const Tensor losses = triplet_margin_loss(a, a, n, {.eps = eps, .reduction = Reduction::none});
    EXPECT_NEAR(losses.to_vector()[0], 0, 1e-5);  // 1 is less than sqrt(3)
    EXPECT_NEAR(losses.to_vector()[1], 1, 1e-5);
    backward(losses, Tensor::from(std::vector<float>{1, 1}, {2}));
    for (const Tensor& x : {a, n}) {
      for (const double value : grad_of(x).to_vector()) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST(NtXentLoss, IsSymmetricAndPrefersEqualViews) {
  const Tensor a = values({6, 5}, 1), b = values({6, 5}, 2);
  EXPECT_NEAR(nt_xent_loss(a, b).item(), nt_xent_loss(b, a).item(), 1e-13);
  EXPECT_LT(nt_xent_loss(a, a).item(), nt_xent_loss(a, b).item());
}

TEST(Similarities, ModulesPassTheirOptionsOn) {
  const Tensor a = values({4, 3}, 1), b = values({4, 3}, 2), c = values({4, 3}, 3);
  const nn::CosineSimilarity along_rows{0, 1e-3};
  EXPECT_TRUE(test::same_bits(along_rows(a, b), cosine_similarity(a, b, 0, 1e-3)));
  const TripletOptions options{.margin = 2, .swap = true, .reduction = Reduction::sum};
  EXPECT_TRUE(
      test::same_bits(nn::TripletMarginLoss{options}(a, b, c), triplet_margin_loss(a, b, c, options)));
}

// Nor do the other losses with options, or attention.
TEST(Similarities, AWarmStepCallsNoOperatorNew) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const Tensor a = test::filled({{8, 5}}, DType::f32, {1}),
               b = test::filled({{8, 5}}, DType::f32, {2}, 0.1, 1);
  const Tensor weight = test::filled({{5}}, DType::f32, {3}, 0.5, 2);
  const Tensor labels = test::filled({{8}}, DType::u8, {4}, 0, 5);
  const Tensor image = test::filled({{2, 3, 4, 6}}, DType::f32, {5});
  for (const Tensor& x : {a, b, image}) require_grad(x);
  const CrossEntropyOptions options{.label_smoothing = 0.1, .weight = weight};
  CrossEntropyOptions ignoring = options;
  ignoring.ignore_index = 3;
  const auto step = [&] {
    for (const Tensor& x : {a, b, image}) zero_grad(x);
    backward(cross_entropy(a, b, options) + cross_entropy(a, labels, ignoring));
    backward(bce_with_logits(a, b, {.weight = weight, .pos_weight = weight}));
    backward(smooth_l1_loss(a, b) + kl_div(a, b) + nt_xent_loss(a, b));
    backward(triplet_margin_loss(a, b, b, {.swap = true}));
    backward(sum(cosine_similarity(a, b)));
    backward(sum(scaled_dot_product_attention(a, b, b, {.causal = true})));
    backward(sum(group_norm(image, 2)));
    for (const auto mode : {Interpolation::nearest, Interpolation::bilinear})
      backward(sum(interpolate(image, {.mode = mode, .size = {7, 5}})));
  };
  for (int i = 0; i < 5; ++i) step();
  const std::int64_t before = test::operator_news();
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(test::operator_news(), before);
}

TEST(Similarities, RejectInvalidArguments) {
  const Tensor a = Tensor::zeros({2, 3}), wide = Tensor::zeros({2, 3}, {DType::f64, kCpu});
  const Tensor whole = Tensor::zeros({2, 3}, {DType::i64, kCpu}), vector = Tensor::zeros({3});
  EXPECT_REFUSED(cosine_similarity(a, wide), "f32", "f64");
  EXPECT_REFUSED(cosine_similarity(a, whole), "i64");
  EXPECT_REFUSED(cosine_similarity(a, Tensor()), "undefined");
  EXPECT_REFUSED(cosine_similarity(a, Tensor::zeros({2, 4})), "[2, 3]", "[2, 4]");
  EXPECT_REFUSED(cosine_similarity(a, a, 2), "[-2, 2)", "2");
  EXPECT_REFUSED(cosine_similarity(a, a, 1, -1), "eps", "-1");
  EXPECT_REFUSED(triplet_margin_loss(a, a, vector), "[..., D]", "[2, 3]", "[3]");
  EXPECT_REFUSED(triplet_margin_loss(a, wide, a), "f32", "f64");
  EXPECT_REFUSED(triplet_margin_loss(a, a, a, {.margin = 0}), "margin", "0");
  EXPECT_REFUSED(triplet_margin_loss(a, a, a, {.eps = -1}), "eps", "-1");
  EXPECT_REFUSED(nt_xent_loss(vector, vector), "[N, D]", "[3]");
  EXPECT_REFUSED(nt_xent_loss(Tensor::zeros({0, 3}), Tensor::zeros({0, 3})), "[N, D]", "[0, 3]");
  EXPECT_REFUSED(nt_xent_loss(a, a, 0), "temperature", "0");
}

}  // namespace athanor::similarity_test
