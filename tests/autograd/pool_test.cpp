#include <limits>

#include "tests/support/ops.h"

namespace athanor::pool_test {

using test::close;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// All different, exact in every dtype up to 257 elements: a permutation of -128 .. 128, repeated.
Tensor scrambled(const Shape& shape, DType dtype = DType::f64) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(i * 101 % 257) - 128);
  return cast(Tensor::from(values, shape), dtype);
}

struct Reference {
  std::vector<double> y, dx;
};

// Max (first of equals) or mean of each window and their gradient for dy, element by element in double.
Reference reference(const Tensor& x, const Pool2dParams& params, bool max, const Tensor& like,
                    const Tensor& dy) {
  const std::int64_t H = x.dim(1), W = x.dim(2), C = x.dim(3), P = like.dim(1), Q = like.dim(2);
  const std::vector<double> in = x.to_vector(), seed = dy.to_vector();
  Reference result{{}, std::vector<double>(in.size(), 0.0)};
  const auto at = [=](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
    return static_cast<std::size_t>(((n * H + h) * W + w) * C + c);
  };
  for (std::int64_t i = 0; i < like.numel(); ++i) {
    const std::int64_t c = i % C, q = i / C % Q, p = i / C / Q % P, n = i / C / Q / P;
    const std::int64_t h0 = p * params.stride[0] - params.padding[0],
                       w0 = q * params.stride[1] - params.padding[1];
    std::vector<std::size_t> inside;
    double count = 0;
    for (std::int64_t h = h0; h < std::min(h0 + params.window[0], H + params.padding[0]); ++h) {
      for (std::int64_t w = w0; w < std::min(w0 + params.window[1], W + params.padding[1]); ++w) {
        const bool real = h >= 0 && h < H && w >= 0 && w < W;
        if (real) inside.push_back(at(n, h, w, c));
        count += real || params.count_padding ? 1 : 0;
      }
    }
    std::size_t best = inside.front();
    double sum = 0;
    for (const std::size_t j : inside) {
      if (in[j] > in[best]) best = j;
      sum += in[j];
    }
    result.y.push_back(max ? in[best] : sum / count);
    for (const std::size_t j : inside) {
      if (!max) result.dx[j] += seed[static_cast<std::size_t>(i)] / count;
    }
    if (max) result.dx[best] += seed[static_cast<std::size_t>(i)];
  }
  return result;
}

struct Case {
  Shape shape;
  Pool2dParams params;
};

std::vector<Case> cases() {
  const Pool2dParams plain, three{{3, 3}, {2, 2}, {1, 1}}, ceil{{3, 2}, {2, 3}, {1, 0}, true},
      gaps{{1, 2}, {3, 3}}, overlap{{3, 3}, {1, 1}, {1, 1}, false, false},
      ceil_bare{{3, 3}, {2, 2}, {1, 1}, true, false}, large{{17, 16}, {1, 1}};
  std::vector<Case> all;
  for (const std::int64_t channels : {1, 3, 6, 8, 16, 17, 64, 70}) {
    all.push_back({{2, 6, 8, channels}, plain});
    all.push_back({{3, 5, 7, channels}, plain});  // an odd row and column no window covers
    for (const Pool2dParams& params : {three, ceil, gaps, overlap, ceil_bare})
      all.push_back({{2, 7, 6, channels}, params});
  }
  all.push_back({{1, 18, 17, 2}, large});  // 272 places: the index needs more than a byte
  all.push_back({{1, 1, 1, 5}, {{1, 1}, {1, 1}}});
  return all;
}

TEST(MaxPool2d, MatchesReferenceForEveryWindowAndDtype) {
  for (const DType dtype : test::kFloating) {
    for (const auto& [shape, params] : cases()) {
      const Tensor x = scrambled(shape, dtype);
      require_grad(x);
      const Tensor y = max_pool2d(x, params);
      const Tensor dy = scrambled(y.shape(), dtype);
      const Reference expected = reference(x, params, true, y, dy);
      EXPECT_EQ(y.to_vector(), expected.y) << name_of(dtype) << shape.str();
      backward(y, dy);
      EXPECT_TRUE(close(grad_of(x), expected.dx, test::epsilon_of(dtype))) << name_of(dtype) << shape.str();
    }
  }
}

TEST(AvgPool2d, MatchesReferenceForEveryWindowAndDtype) {
  for (const DType dtype : test::kFloating) {
    for (const auto& [shape, params] : cases()) {
      const Tensor x = scrambled(shape, dtype);
      require_grad(x);
      const Tensor y = avg_pool2d(x, params);
      const Tensor dy = scrambled(y.shape(), dtype);
      const Reference expected = reference(x, params, false, y, dy);
      EXPECT_TRUE(close(y, expected.y, 2 * test::epsilon_of(dtype))) << name_of(dtype) << shape.str();
      backward(y, dy);
      EXPECT_TRUE(close(grad_of(x), expected.dx, 2 * test::epsilon_of(dtype)))
          << name_of(dtype) << shape.str();
    }
  }
}

TEST(MaxPool2d, FirstOfEqualMaximaGetsTheGradient) {
  const Tensor x = Tensor::from(std::vector<float>{1, 5, 5, 5, 2, 2, 2, 2}, {2, 2, 2, 1});
  require_grad(x);
  backward(max_pool2d(x), Tensor::from(std::vector<float>{10, 20}, {2, 1, 1, 1}));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 10, 0, 0, 20, 0, 0, 0}));
}

TEST(MaxPool2d, NaNWinsAndTakesTheGradient) {
  for (const bool padded : {false, true}) {  // both code paths
    const Pool2dParams params = padded ? Pool2dParams{{2, 2}, {2, 2}, {1, 1}} : Pool2dParams{};
    const Tensor x = Tensor::from(std::vector<double>{9, kNaN, kNaN, 8}, {1, 2, 2, 1});
    require_grad(x);
    const Tensor y = max_pool2d(x, params);
    const std::vector<double> values = y.to_vector();
    if (padded) {
      EXPECT_TRUE(values[0] == 9 && std::isnan(values[1]) && std::isnan(values[2]) && values[3] == 8);
    } else {
      EXPECT_TRUE(std::isnan(values[0]));
      backward(y, Tensor::from(std::vector<double>{3}, y.shape()));
      EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 3, 0, 0}));
    }
  }
}

TEST(MaxPool2d, PaddingNeverWins) {
  const Tensor x = Tensor::from(std::vector<float>{-3, -4, -5, -6}, {1, 2, 2, 1});
  const Tensor y = max_pool2d(x, {{2, 2}, {2, 2}, {1, 1}});
  EXPECT_EQ(y.to_vector(), (std::vector<double>{-3, -4, -5, -6}));
  const Tensor low =
      Tensor::from(std::vector<double>(4, -std::numeric_limits<double>::infinity()), {1, 2, 2, 1});
  EXPECT_EQ(max_pool2d(low).item(), -std::numeric_limits<double>::infinity());
}

TEST(MaxPool2d, AnInfiniteGradientStaysWhereItBelongs) {
  const Tensor x = scrambled({1, 4, 4, 1});
  for (const Pool2dParams& params : {Pool2dParams{}, Pool2dParams{{3, 3}, {1, 1}, {1, 1}}}) {
    zero_grad(require_grad(x));
    const Tensor y = max_pool2d(x, params);
    const Tensor dy = Tensor::zeros(y.shape(), y.options());
    dy.data<double>()[0] = std::numeric_limits<double>::infinity();
    backward(y, dy);
    int nonzero = 0;
    for (const double value : grad_of(x).to_vector()) nonzero += value != 0;
    EXPECT_EQ(nonzero, 1);
  }
}

TEST(Pool2d, ShapesOfCeilModeAndPadding) {
  const auto rows = [](std::int64_t h, Pool2dParams params) {
    params.window[1] = params.stride[1] = 1;
    params.padding[1] = 0;
    return max_pool2d(Tensor::zeros({1, h, 1, 1}), params).dim(1);
  };
  EXPECT_EQ(rows(5, {{2, 1}, {2, 1}}), 2);
  EXPECT_EQ(rows(5, {{2, 1}, {2, 1}, {0, 0}, true}), 3);
  EXPECT_EQ(rows(4, {{3, 1}, {2, 1}, {1, 0}, true}), 3);
  EXPECT_EQ(rows(1, {{2, 1}, {3, 1}, {1, 0}, true}), 1);  // the second window would start in the padding
  EXPECT_EQ(rows(224, {{3, 1}, {2, 1}, {1, 0}}), 112);
}

TEST(Pool2d, RejectsInvalidArguments) {
  const Tensor x = Tensor::zeros({1, 4, 4, 1});
  EXPECT_THROW(max_pool2d(x, {{5, 2}, {1, 1}}), ArgumentError);
  EXPECT_THROW(max_pool2d(x, {{2, 2}, {0, 1}}), ArgumentError);
  EXPECT_THROW(max_pool2d(x, {{2, 2}, {1, 1}, {2, 0}}), ArgumentError);
  EXPECT_THROW(avg_pool2d(Tensor::zeros({4, 4, 1})), ArgumentError);
  EXPECT_THROW(avg_pool2d(Tensor::zeros({1, 4, 4, 1}, {DType::i64, kCpu})), ArgumentError);
  EXPECT_THROW(adaptive_avg_pool2d(x, 0, 1), ArgumentError);
  EXPECT_THROW(adaptive_avg_pool2d(Tensor::zeros({1, 0, 4, 1}), 1, 1), ArgumentError);
}

TEST(Pool2d, EmptyBatchAndNoChannels) {
  for (const Shape& shape : {Shape{0, 4, 4, 3}, Shape{2, 4, 4, 0}}) {
    const Tensor x = Tensor::zeros(shape);
    require_grad(x);
    for (const Tensor& y : {max_pool2d(x), avg_pool2d(x), adaptive_avg_pool2d(x, 2, 2)}) {
      EXPECT_EQ(y.shape(), Shape({shape[0], 2, 2, shape[3]}));
      backward(y, y.detach());
    }
    EXPECT_EQ(grad_of(x).shape(), shape);
  }
}

TEST(AdaptiveAvgPool2d, ValuesWorkedOutByHand) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5}, {1, 1, 5, 1});
  require_grad(x);
  const Tensor y = adaptive_avg_pool2d(x, 1, 3);  // windows [0, 2) [1, 4) [3, 5)
  EXPECT_EQ(y.to_vector(), (std::vector<double>{1.5, 3, 4.5}));
  backward(y, Tensor::from(std::vector<float>{2, 3, 4}, {1, 1, 3, 1}));
  EXPECT_TRUE(close(grad_of(x), std::vector<double>{1, 2, 1, 3, 2}, 1e-7));
  EXPECT_EQ(adaptive_avg_pool2d(x, 2, 5).to_vector(), (std::vector<double>{1, 2, 3, 4, 5, 1, 2, 3, 4, 5}));
}

TEST(AdaptiveAvgPool2d, GlobalAverageOfEveryChannelCount) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t channels : {1, 5, 16, 64, 131}) {
      const Tensor x = scrambled({3, 8, 8, channels}, dtype);
      const std::vector<double> in = x.to_vector();
      std::vector<double> expected;
      for (std::int64_t i = 0; i < 3 * channels; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < 64; ++j)
          sum += in[static_cast<std::size_t>((i / channels * 64 + j) * channels + i % channels)];
        expected.push_back(sum / 64);
      }
      EXPECT_TRUE(close(adaptive_avg_pool2d(x, 1, 1), expected, test::epsilon_of(dtype))) << name_of(dtype);
    }
  }
}

}  // namespace athanor::pool_test
