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
double loss_tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : 4e-6;
}

/// Rows [N, D] in double.
struct Matrix {
  std::vector<double> values;
  std::size_t rows, columns;

  explicit Matrix(const Tensor& x)
      : values(x.to_vector()),
        rows(static_cast<std::size_t>(x.dim(0))),
        columns(static_cast<std::size_t>(x.dim(1))) {}
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
  static double cosine(const Matrix& a, std::size_t i, const Matrix& b, std::size_t j, double eps = 1e-8) {
    double product = 0, left = 0, right = 0;
    for (std::size_t d = 0; d < a.columns; ++d) {
      product += a.at(i, d) * b.at(j, d);
      left += a.at(i, d) * a.at(i, d);
      right += b.at(j, d) * b.at(j, d);
    }
    return product / (std::max(std::sqrt(left), eps) * std::max(std::sqrt(right), eps));
  }
  static double distance(const Matrix& a, const Matrix& b, std::size_t i, double eps) {
    double square = 0;
    for (std::size_t d = 0; d < a.columns; ++d)
      square += (a.at(i, d) - b.at(i, d) + eps) * (a.at(i, d) - b.at(i, d) + eps);
    return std::sqrt(square);
  }
};

TEST(CosineSimilarity, MatchesDoubleReference) {
  for (const DType dtype : test::kFloating) {
    for (const Shape& shape : {Shape{4, 1}, Shape{1, 7}, Shape{5, 33}, Shape{3, 1031}}) {
      const Tensor a = values(shape, 1, dtype), b = values(shape, 2, dtype);
      const Matrix left(a), right(b);
      std::vector<double> expected;
      for (std::size_t i = 0; i < left.rows; ++i) expected.push_back(Matrix::cosine(left, i, right, i));
      const Tensor y = cosine_similarity(a, b);
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_TRUE(close(y, expected, std::max(4 * test::epsilon_of(dtype), 1e-13)));
      const Tensor along_rows = cosine_similarity(transpose(a, 0, 1), transpose(b, 0, 1), 0);
      EXPECT_TRUE(close(along_rows, y, std::max(4 * test::epsilon_of(dtype), 1e-13)));
    }
  }
  EXPECT_EQ(cosine_similarity(Tensor::zeros({0, 3}), Tensor::zeros({0, 3})).shape(), Shape({0}));
  EXPECT_EQ(cosine_similarity(Tensor::zeros({3, 0}), Tensor::zeros({3, 0})).to_vector(),
            (std::vector<double>{0, 0, 0}));
}

TEST(CosineSimilarity, Broadcasts) {
  const Tensor a = values({4, 6}, 1), b = values({3, 6}, 2);
  const Matrix left(a), right(b);
  std::vector<double> expected;
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 3; ++j) expected.push_back(Matrix::cosine(left, i, right, j));
  }
  const Tensor y = cosine_similarity(unsqueeze(a, 1), unsqueeze(b, 0), -1);
  EXPECT_EQ(y.shape(), Shape({4, 3}));
  EXPECT_TRUE(close(y, expected, 1e-14));
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

TEST(CosineSimilarity, HoldsForAnyLengthAndEps) {
  const auto rows = [](float x, float y) { return Tensor::from(std::vector<float>{x, y}, {1, 2}); };
  EXPECT_EQ(cosine_similarity(rows(0, 0), rows(1, 1), 1, 1e-30).item(), 0);
  for (const float size : {1e-20f, 1e-10f, 1e20f, 1e38f}) {
    EXPECT_NEAR(cosine_similarity(rows(size, size), rows(0, size), 1, 1e-30).item(), std::sqrt(0.5), 1e-7)
        << size;
  }
}

TEST(TripletMarginLoss, MatchesDoubleReference) {
  for (const DType dtype : test::kFloating) {
    for (const bool swap : {false, true}) {
      for (const Shape& shape : {Shape{0, 3}, Shape{1, 1}, Shape{9, 33}}) {
        const Tensor a = values(shape, 1, dtype), p = values(shape, 2, dtype), n = values(shape, 3, dtype);
        const Matrix anchor(a), positive(p), negative(n);
        std::vector<double> losses;
        double sum = 0;
        for (std::size_t i = 0; i < anchor.rows; ++i) {
          double apart = Matrix::distance(anchor, negative, i, 1e-6);
          if (swap) apart = std::min(apart, Matrix::distance(positive, negative, i, 1e-6));
          sum +=
              losses.emplace_back(std::max(0.0, 0.5 + Matrix::distance(anchor, positive, i, 1e-6) - apart));
        }
        const auto run = [&](Reduction reduction) {
          return triplet_margin_loss(a, p, n, {.margin = 0.5, .swap = swap, .reduction = reduction});
        };
        EXPECT_EQ(run(Reduction::none).dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
        EXPECT_TRUE(close(run(Reduction::none), losses, loss_tolerance(dtype)));
        EXPECT_TRUE(close(run(Reduction::sum), std::vector{sum}, loss_tolerance(dtype)));
        EXPECT_TRUE(close(run(Reduction::mean), std::vector{sum / static_cast<double>(losses.size())},
                          loss_tolerance(dtype)));
      }
    }
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

TEST(NtXentLoss, MatchesDoubleReference) {
  for (const DType dtype : test::kFloating) {
    for (const Shape& shape : {Shape{1, 3}, Shape{4, 1}, Shape{9, 33}}) {
      const Tensor a = values(shape, 1, dtype), b = values(shape, 2, dtype);
      const Matrix rows(cat(std::array{a, b}, 0));
      double loss = 0;
      for (std::size_t i = 0; i < rows.rows; ++i) {
        const auto likeness = [&](std::size_t k) { return Matrix::cosine(rows, i, rows, k) / 0.2; };
        double sum = 0;
        for (std::size_t k = 0; k < rows.rows; ++k) sum += k == i ? 0 : std::exp(likeness(k));
        loss += std::log(sum) - likeness((i + rows.rows / 2) % rows.rows);
      }
      const Tensor y = nt_xent_loss(a, b, 0.2);
      EXPECT_EQ(y.dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
      EXPECT_NEAR(y.item(), loss / static_cast<double>(rows.rows), loss_tolerance(dtype)) << name_of(dtype);
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
