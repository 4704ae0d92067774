// Max pooling with a dilation, the positions of the maxima, and the way back.

#include "tests/support/ops.h"
#include "tests/support/pool_cases.h"
#include "tests/support/waves.h"

namespace athanor::pool_indices_test {

using test::cast_to;
using test::dilated_pool_cases;
using test::filled;
using test::PoolCase;
using test::same_bits;

/// y, positions and dx, one window after the other.
struct Reference {
  std::vector<double> y, positions, dx;

  Reference(const Tensor& x, const Tensor& dy, const Pool2dParams& params) {
    const std::int64_t H = x.dim(1), W = x.dim(2), C = x.dim(3), P = dy.dim(1), Q = dy.dim(2);
    const std::vector<double> in = x.to_vector(), seed = dy.to_vector();
    dx.resize(in.size());
    for (std::int64_t i = 0; i < dy.numel(); ++i) {
      const std::int64_t c = i % C, q = i / C % Q, p = i / C / Q % P, n = i / C / Q / P;
      std::int64_t best = -1;
      for (std::int64_t r = 0; r < params.window[0]; ++r) {
        for (std::int64_t s = 0; s < params.window[1]; ++s) {
          const std::int64_t h = p * params.stride[0] - params.padding[0] + r * params.dilation[0];
          const std::int64_t w = q * params.stride[1] - params.padding[1] + s * params.dilation[1];
          if (h < 0 || h >= H || w < 0 || w >= W) continue;
          const auto value = [&](std::int64_t at) {
            return in[static_cast<std::size_t>((n * H * W + at) * C + c)];
          };
          if (best < 0 || value(h * W + w) > value(best)) best = h * W + w;
        }
      }
      const auto from = static_cast<std::size_t>((n * H * W + best) * C + c);
      y.push_back(in[from]);
      positions.push_back(static_cast<double>(best));
      dx[from] += seed[static_cast<std::size_t>(i)];
    }
  }
};

TEST(MaxPool2dIndices, MatchTheReferenceForEveryWindowAndDtype) {
  for (const PoolCase& c : dilated_pool_cases()) {
    for (const DType dtype : test::kFloating) {
      SCOPED_TRACE(fmt::format("{} {}", test::describe(c), dtype));
      const Tensor x = require_grad(filled({c.x}, dtype, {1}));
      const auto [y, indices] = max_pool2d_with_indices(x, c.params);
      const Tensor dy = filled({y.shape()}, dtype, {2});
      const Reference expected(x, dy, c.params);
      EXPECT_EQ(y.to_vector(), expected.y);
      EXPECT_EQ(indices.dtype(), DType::i64);
      EXPECT_EQ(indices.to_vector(), expected.positions);
      EXPECT_TRUE(same_bits(max_pool2d(x, c.params), y.detach()));
      backward(y, dy);
      EXPECT_TRUE(test::close(grad_of(x), expected.dx, 4 * test::epsilon_of(dtype)));
    }
  }
}

// Values of torch.nn.functional.max_pool2d, PyTorch 2.15.
TEST(MaxPool2dIndices, AsPyTorchs) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {1, 1, 6, 1});
  const auto [y, indices] =
      max_pool2d_with_indices(x, {.window = {1, 2}, .stride = {1, 1}, .padding = {0, 1}, .dilation = {1, 3}});
  EXPECT_EQ(y.to_vector(), (std::vector<double>{3, 4, 5, 6, 4}));
  EXPECT_EQ(indices.to_vector(), (std::vector<double>{2, 3, 4, 5, 3}));
  // Where all is -infinity, the first element that is no padding.
  const Tensor low = Tensor::from(std::vector<float>(4, -INFINITY), {1, 2, 2, 1});
  EXPECT_EQ(max_pool2d_with_indices(low, {.stride = {1, 1}, .padding = {1, 1}}).indices.to_vector(),
            (std::vector<double>{0, 0, 1, 0, 0, 1, 2, 2, 3}));
}

TEST(MaxPool2dIndices, NaNWins) {
  for (const std::int64_t dilation : {1, 2}) {
    const Tensor x = filled({{1, 1, 5, 1}}, DType::f32, {1});
    x.data<float>()[2] = NAN;
    const auto [y, indices] =
        max_pool2d_with_indices(x, {.window = {1, 2}, .stride = {1, 1}, .dilation = {1, dilation}});
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      const bool sees = i == 2 || i + dilation == 2;
      EXPECT_EQ(std::isnan(y.to_vector()[static_cast<std::size_t>(i)]), sees);
      if (sees) {
        EXPECT_EQ(indices.data<std::int64_t>()[i], 2);
      }
    }
  }
}

TEST(MaxPool2dIndices, MistakesAreNamed) {
  const Tensor x = Tensor::zeros({1, 4, 4, 1});
  EXPECT_REFUSED(max_pool2d(x, {.dilation = {0, 1}}), "window", "stride", "dilation", "2", "0");
  EXPECT_REFUSED(max_pool2d(x, {.dilation = {1, 4}}), "5", "4", "0");
  // Elements at -1 and 2 of an axis of 2: PyTorch returns -infinity here, and an index that is none.
  const Pool2dParams only_padding{.window = {1, 2}, .stride = {1, 1}, .padding = {0, 1}, .dilation = {1, 3}};
  EXPECT_REFUSED(max_pool2d(Tensor::zeros({1, 1, 2, 1}), only_padding), "x", "0", "padding");
  EXPECT_REFUSED(avg_pool2d(x, {.dilation = {2, 1}}), "dilation", "1", "2 x 1");
}

TEST(MaxUnpool2d, PutsMaximaBackWhereTheyWere) {
  const Tensor x = Tensor::from(std::vector<float>{1, 8, 3, 4, 5, 6, 7, 2}, {1, 2, 4, 1});
  const auto [y, indices] = max_pool2d_with_indices(x);
  EXPECT_EQ(indices.to_vector(), (std::vector<double>{1, 6}));
  EXPECT_EQ(max_unpool2d(y, indices, 2, 4).to_vector(), (std::vector<double>{0, 8, 0, 0, 0, 0, 7, 0}));
  for (const DType dtype : test::kFloating) {
    const Tensor wide = filled({{2, 7, 6, 5}}, dtype, {1}, 0.5, 1);
    const auto [top, at] = max_pool2d_with_indices(wide);
    const Tensor back = max_unpool2d(top, at, 7, 6);
    EXPECT_EQ(back.shape(), wide.shape());
    EXPECT_TRUE(same_bits(max_pool2d(back), top));
    double kept = 0;
    for (const double value : back.to_vector()) kept += value != 0;
    EXPECT_EQ(kept, static_cast<double>(top.numel()));
  }
}

TEST(MaxUnpool2d, ValuesForOnePlaceAreSummed) {
  const Tensor y = Tensor::from(std::vector<float>{5, 6, 7}, {1, 1, 3, 1});
  const Tensor at = Tensor::from(std::vector<std::int64_t>{3, 0, 3}, {1, 1, 3, 1});
  EXPECT_EQ(max_unpool2d(y, at, 2, 2).to_vector(), (std::vector<double>{6, 0, 0, 12}));
}

TEST(MaxUnpool2d, StridedAndEmpty) {
  const Tensor x = filled({{2, 3, 4, 5}, test::Layout::transposed}, DType::f32, {1});
  const Tensor at = filled({{2, 3, 4, 5}, test::Layout::gapped}, DType::i64, {2}, 0, 48);
  const Tensor dense_x = Tensor::from(x.to_vector(), x.shape());
  std::vector<std::int64_t> indices;
  for (const double i : at.to_vector()) indices.push_back(static_cast<std::int64_t>(i));
  EXPECT_EQ(max_unpool2d(x, at, 6, 8).to_vector(),
            max_unpool2d(cast_to(dense_x, DType::f32), Tensor::from(indices, at.shape()), 6, 8).to_vector());
  for (const Shape& shape : {Shape{0, 2, 2, 3}, Shape{2, 2, 2, 0}}) {
    const Tensor none = require_grad(Tensor::zeros(shape));
    const Tensor y = max_unpool2d(none, Tensor::zeros(shape, {DType::i64, kCpu}), 4, 4);
    EXPECT_EQ(y.shape(), (Shape{shape[0], 4, 4, shape[3]}));
    backward(y, y.detach());
    EXPECT_EQ(grad_of(none).shape(), shape);
  }
}

TEST(MaxUnpool2d, MistakesAreNamed) {
  const Tensor x = Tensor::zeros({1, 1, 2, 1});
  const auto at = [](std::int64_t a, std::int64_t b) {
    return Tensor::from(std::vector<std::int64_t>{a, b}, {1, 1, 2, 1});
  };
  EXPECT_NO_THROW(max_unpool2d(x, at(0, 3), 2, 2));
  EXPECT_REFUSED(max_unpool2d(x, at(0, 4), 2, 2), "[0, 4)", "4");
  EXPECT_REFUSED(max_unpool2d(x, at(-1, 0), 2, 2), "[0, 4)", "-1");
  EXPECT_REFUSED(max_unpool2d(x, at(0, 1), 0, 2), "0 x 2");
  EXPECT_REFUSED(max_unpool2d(x, x, 2, 2), "indices", "i64 [1, 1, 2, 1]", "f32 [1, 1, 2, 1]");
  EXPECT_REFUSED(max_unpool2d(x, {}, 2, 2), "indices", "i64 [1, 1, 2, 1]", "undefined");
}

}  // namespace athanor::pool_indices_test
