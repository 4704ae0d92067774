#include "autograd/conv_transpose.h"

#include "nn/conv_transpose2d.h"
#include "nn/sequential.h"
#include "nn/torch/torch_layout.h"
#include "tests/support/conv_transpose_cases.h"
#include "tests/support/count_new.h"
#include "tests/support/ops.h"

namespace athanor::conv_transpose_test {

using test::close;
using test::conv_transpose_cases;
using test::ConvTransposeCase;
using test::epsilon_of;
using test::filled;
using test::same_bits;

constexpr ConvImpl kImpls[] = {ConvImpl::automatic, ConvImpl::reference};

std::string name(const ConvTransposeCase& c, DType dtype, ConvImpl impl) {
  return fmt::format("x {} w {} stride {} groups {} {} impl {}", c.x, c.w, c.params.stride[0],
                     c.params.groups, dtype, static_cast<int>(impl));
}

// A sum of n products below 1 in f32 (f64), then one rounding to the dtype.
double tolerance(DType dtype, std::int64_t n) {
  const double sums = dtype == DType::f64 ? epsilon_of(DType::f64) : epsilon_of(DType::f32);
  return static_cast<double>(n) * sums + epsilon_of(dtype);
}

struct Operands {
  Tensor x, w, bias, dy;

  Operands(const ConvTransposeCase& c, DType dtype) {
    const Shape out = conv_transpose2d_shape(c.x, c.w, c.params);
    x = require_grad(filled({c.x}, dtype, {1})), w = require_grad(filled({c.w}, dtype, {2}));
    bias = require_grad(filled({{out[3]}}, dtype, {3}));
    dy = filled({out}, dtype, {4});
  }
};

TEST(ConvTranspose2d, ShapesFollowTheFormula) {
  EXPECT_EQ(conv_transpose2d_shape({8, 1, 1, 100}, {100, 7, 7, 64}, {}), (Shape{8, 7, 7, 64}));
  EXPECT_EQ(conv_transpose2d_shape({8, 7, 7, 64}, {64, 4, 4, 32}, {.stride = {2, 2}, .padding = {1, 1}}),
            (Shape{8, 14, 14, 32}));
  EXPECT_EQ(
      conv_transpose2d_shape({1, 5, 6, 4}, {4, 3, 3, 5},
                             {.stride = {2, 3}, .output_padding = {1, 2}, .dilation = {1, 2}, .groups = 2}),
      (Shape{1, 12, 22, 10}));
}

TEST(ConvTranspose2d, TwoByTwoByHand) {
  // Each value of 1 2 / 3 4 times the filter 1 10 / 100 1000, where they overlap added up.
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {1, 2, 2, 1});
  const Tensor w = Tensor::from(std::vector<float>{1, 10, 100, 1000}, {1, 2, 2, 1});
  const Tensor bias = Tensor::from(std::vector<float>{0.5}, {1});
  for (const ConvImpl impl : kImpls) {
    EXPECT_EQ(conv_transpose2d(x, w, {}, {.impl = impl}).to_vector(),
              (std::vector<double>{1, 12, 20, 103, 1234, 2040, 300, 3400, 4000}));
    EXPECT_EQ(conv_transpose2d(x, w, bias, {.padding = {1, 1}, .impl = impl}).to_vector(),
              (std::vector<double>{1234.5}));
    EXPECT_EQ(conv_transpose2d(x, w, {}, {.stride = {2, 2}, .padding = {1, 0}, .impl = impl}).to_vector(),
              (std::vector<double>{100, 1000, 200, 2000, 3, 30, 4, 40}));
  }
}

TEST(ConvTranspose2d, IsTheTransposeOfTheConvolution) {
  for (const ConvTransposeCase& c : conv_transpose_cases()) {
    const ConvTranspose2dParams& p = c.params;
    const Conv2dParams conv{.stride = {p.stride[0], p.stride[1]},
                            .padding = {p.padding[0], p.padding[1]},
                            .dilation = {p.dilation[0], p.dilation[1]},
                            .groups = p.groups};
    const Operands t(c, DType::f64);
    if (conv2d_shape(t.dy.shape(), c.w, conv) != c.x) continue;  // output padding beyond the stride
    const double left = sum(conv_transpose2d(t.x, t.w, {}, p) * t.dy).item(),
                 right = sum(t.x * conv2d(t.dy, t.w, {}, conv)).item();
    EXPECT_NEAR(left, right, 1e-9) << name(c, DType::f64, p.impl);
  }
}

TEST(ConvTranspose2d, WritesAndAddsIntoTheGradientSlice) {
  const ConvTransposeCase c{{2, 5, 5, 16}, {16, 4, 4, 8}, {.stride = {2, 2}, .padding = {1, 1}}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const DType slices : {dtype, DType::f32}) {
      const Operands t(c, dtype);
      const Tensor w_slice = Tensor::empty(t.w.shape(), {slices}), b_slice = Tensor::empty({8}, {slices});
      leaf_of(t.w).bind(w_slice), leaf_of(t.bias).bind(b_slice);
      const Tensor w = test::leaf_like(t.w, DType::f64), bias = test::leaf_like(t.bias, DType::f64);
      backward(conv_transpose2d(cast(t.x.detach(), DType::f64), w, bias, c.params), cast(t.dy, DType::f64));
      for (const double times : {1.0, 2.0}) {
        backward(conv_transpose2d(t.x, t.w, t.bias, c.params), t.dy);
        std::vector<double> dw = grad_of(w).to_vector(), db = grad_of(bias).to_vector();
        for (double& value : dw) value *= times;
        for (double& value : db) value *= times;
        EXPECT_TRUE(close(w_slice, dw, tolerance(slices, 50) + epsilon_of(slices)));
        EXPECT_TRUE(close(b_slice, db, tolerance(slices, 200) + epsilon_of(slices)));
      }
    }
  }
}

TEST(ConvTranspose2d, EmptySizesGiveNothingOrZeros) {
  const auto run = [](const Shape& x_shape, const Shape& w_shape) {
    const Tensor x = require_grad(filled({x_shape}, DType::f32)),
                 w = require_grad(filled({w_shape}, DType::f32));
    const Tensor bias = require_grad(filled({{w_shape[3]}}, DType::f32));
    const Tensor y = conv_transpose2d(x, w, bias);
    const std::vector<double> values = y.to_vector(), offsets = bias.to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], offsets[i % offsets.size()]);
    backward(y, Tensor::zeros(y.shape()));
    EXPECT_EQ(grad_of(x).to_vector(), std::vector<double>(static_cast<std::size_t>(x.numel()), 0));
    EXPECT_EQ(grad_of(w).to_vector(), std::vector<double>(static_cast<std::size_t>(w.numel()), 0));
    EXPECT_EQ(grad_of(bias).to_vector(), std::vector<double>(offsets.size(), 0));
    return y.shape();
  };
  EXPECT_EQ(run({0, 3, 3, 4}, {4, 3, 3, 2}), (Shape{0, 5, 5, 2}));  // no images
  EXPECT_EQ(run({2, 3, 3, 0}, {0, 3, 3, 2}), (Shape{2, 5, 5, 2}));  // no channels
  EXPECT_EQ(run({2, 3, 3, 4}, {4, 3, 3, 0}), (Shape{2, 5, 5, 0}));  // no filters
}

TEST(ConvTranspose2d, InfinityAndNaNReachWhatTheirFilterReaches) {
  const Tensor x = Tensor::zeros({1, 3, 3, 1});
  x.data<float>()[0] = INFINITY, x.data<float>()[8] = NAN;
  const Tensor w = Tensor::from(std::vector<float>(4, 2), {1, 2, 2, 1});
  const std::vector<double> y =
      conv_transpose2d(x, w, {}, {.stride = {2, 2}, .impl = ConvImpl::reference}).to_vector();
  for (std::size_t i = 0; i < 36; ++i) {
    const std::size_t row = i / 6, column = i % 6;
    if (row < 2 && column < 2) {
      EXPECT_EQ(y[i], INFINITY);
    } else if (row > 3 && column > 3) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else {
      EXPECT_EQ(y[i], 0);
    }
  }
}

TEST(ConvTranspose2d, MistakesAreNamed) {
  const Tensor x = Tensor::zeros({1, 4, 4, 2}), w = Tensor::zeros({2, 3, 3, 3});
  EXPECT_NO_THROW(conv_transpose2d(x, w));
  EXPECT_REFUSED(conv_transpose2d({}, w), "x", "w");
  EXPECT_REFUSED(conv_transpose2d(x, Tensor::zeros({2, 3, 3, 3}, {DType::f64})), "f32", "f64",
                 "cast(w, DType::f32)");
  EXPECT_REFUSED(conv_transpose2d(Tensor::zeros({4, 4, 2}), w), "x", "[N, H, W, C]", "[4, 4, 2]");
  EXPECT_REFUSED(conv_transpose2d(Tensor::zeros({1, 0, 4, 2}), w), "x", "[N, H, W, C]", "[1, 0, 4, 2]");
  EXPECT_REFUSED(conv_transpose2d(x, Tensor::zeros({2, 3, 3})), "w", "[C, R, S, K / groups]", "[2, 3, 3]");
  EXPECT_REFUSED(conv_transpose2d(x, w, {}, {.groups = 3}), "groups", "C", "3", "2");
  EXPECT_REFUSED(conv_transpose2d(x, w, {}, {.groups = 0}), "groups", "C", "0", "2");
  EXPECT_REFUSED(conv_transpose2d(x, Tensor::zeros({3, 3, 3, 2})), "w", "2", "[1, 4, 4, 2]", "[3, 3, 3, 2]");
  EXPECT_REFUSED(conv_transpose2d(x, Tensor::zeros({2, 0, 3, 3})), "0 x 3");
  EXPECT_REFUSED(conv_transpose2d(x, w, {}, {.stride = {1, 0}}), "stride", "dilation", "padding", "0", "1");
  EXPECT_REFUSED(conv_transpose2d(x, w, {}, {.stride = {1, 2}, .output_padding = {0, 2}}), "output_padding",
                 "stride", "2", "dilation", "1");
  EXPECT_REFUSED(conv_transpose2d(x, w, {}, {.padding = {0, 3}}), "width", "1", "0");
  EXPECT_REFUSED(conv_transpose2d(x, w, Tensor::zeros({2})), "bias", "f32 [3]", "f32 [2]");
}

TEST(ConvTranspose2d, SameBitsEveryRunAndNothingAllocatedOnceWarm) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  for (const ConvTransposeCase& c : conv_transpose_cases()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Operands t(c, dtype);
      for (const Tensor& leaf : {t.x, t.w, t.bias}) leaf_of(leaf).bind(empty_like(leaf));
      const auto step = [&] {
        for (const Tensor& leaf : {t.x, t.w, t.bias}) zero_grad(leaf);
        const Tensor y = conv_transpose2d(t.x, t.w, t.bias, c.params);
        backward(y, t.dy);
        return y.detach();
      };
      const Tensor y = step(), dx = Tensor::from(grad_of(t.x).to_vector(), c.x),
                   dw = Tensor::from(grad_of(t.w).to_vector(), c.w);
      step();
      const std::int64_t before = test::operator_news();
      const Tensor again = step();
      EXPECT_EQ(test::operator_news(), before) << name(c, dtype, c.params.impl);
      EXPECT_TRUE(same_bits(again, y));
      EXPECT_EQ(grad_of(t.x).to_vector(), dx.to_vector());
      EXPECT_EQ(grad_of(t.w).to_vector(), dw.to_vector());
    }
  }
}

TEST(ConvTranspose2dModule, StartsAsPyTorchsDoes) {
  nn::ConvTranspose2d layer(6, 4, 5, {.stride = 2, .padding = 2, .output_padding = 1, .groups = 2});
  EXPECT_EQ(layer.weight().shape(), (Shape{6, 5, 5, 2}));
  EXPECT_EQ(layer.bias().shape(), (Shape{4}));
  layer.initialize(1);
  const double bound = 1 / std::sqrt(5 * 5 * 2);
  double largest = 0;
  for (const double value : layer.weight().to_vector()) largest = std::max(largest, std::abs(value));
  EXPECT_LE(largest, bound);
  EXPECT_GE(largest, 0.97 * bound);
  for (const double value : layer.bias().to_vector()) EXPECT_LE(std::abs(value), bound);
  EXPECT_EQ(layer(filled({{2, 7, 6, 6}}, DType::f32)).shape(), (Shape{2, 14, 12, 4}));
  EXPECT_THROW(nn::ConvTranspose2d(6, 4, 0), ArgumentError);
  EXPECT_THROW(nn::ConvTranspose2d(6, 4, 3, {.groups = 4}), ArgumentError);
}

TEST(ConvTranspose2dModule, WeightsGoToPyTorchsLayoutAndBack) {
  nn::ConvTranspose2d layer(3, 4, 2, {.bias = false});
  layer.initialize(1);
  const StateDict ours = layer.state_dict(), torch = nn::to_torch_layout(layer, ours);
  const Tensor weight = torch.tensor("weight");
  ASSERT_EQ(weight.shape(), (Shape{3, 4, 2, 2}));
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t k = 0; k < 4; ++k)
      for (std::int64_t rs = 0; rs < 4; ++rs)
        EXPECT_EQ(weight.data<float>()[(c * 4 + k) * 4 + rs],
                  layer.weight().data<float>()[(c * 4 + rs) * 4 + k]);
  EXPECT_EQ(nn::from_torch_layout(layer, torch).tensor("weight").to_vector(),
            ours.tensor("weight").to_vector());
}

}  // namespace athanor::conv_transpose_test
