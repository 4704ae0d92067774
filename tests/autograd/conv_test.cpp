#include "kernels/conv.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/onednn.h"
#include "tests/support/conv_cases.h"
#include "tests/support/conv_values.h"
#include "tests/support/ops.h"

namespace athanor::conv_test {

using test::close;
using test::conv_cases;
using test::ConvCase;
using test::epsilon_of;
using test::name;
using test::values;

constexpr ConvImpl kImpls[] = {ConvImpl::automatic, ConvImpl::reference};

/// y, dx and dw by the definition, in double, one multiply-add at a time.
struct Reference {
  std::vector<double> y, dx, dw, db;

  Reference(const Tensor& x, const Tensor& w, const Tensor& dy, const Conv2dParams& c) {
    const Shape out = conv2d_shape(x.shape(), w.shape(), c);
    const std::vector<double> xv = x.to_vector(), wv = w.to_vector(), gv = dy.to_vector();
    y.resize(static_cast<std::size_t>(out.numel()));
    dx.resize(xv.size()), dw.resize(wv.size()), db.resize(static_cast<std::size_t>(out[3]));
    const std::int64_t gc = w.shape()[3], gk = w.shape()[0] / c.groups;
    for (std::int64_t n = 0; n < out[0]; ++n)
      for (std::int64_t p = 0; p < out[1]; ++p)
        for (std::int64_t q = 0; q < out[2]; ++q)
          for (std::int64_t k = 0; k < out[3]; ++k) {
            const auto at = static_cast<std::size_t>(((n * out[1] + p) * out[2] + q) * out[3] + k);
            db[static_cast<std::size_t>(k)] += gv[at];
            for (std::int64_t r = 0; r < w.shape()[1]; ++r)
              for (std::int64_t s = 0; s < w.shape()[2]; ++s) {
                const std::int64_t row = p * c.stride[0] - c.padding[0] + r * c.dilation[0];
                const std::int64_t column = q * c.stride[1] - c.padding[1] + s * c.dilation[1];
                if (row < 0 || row >= x.shape()[1] || column < 0 || column >= x.shape()[2]) continue;
                for (std::int64_t i = 0; i < gc; ++i) {
                  const auto xi = static_cast<std::size_t>(
                      ((n * x.shape()[1] + row) * x.shape()[2] + column) * x.shape()[3] + k / gk * gc + i);
                  const auto wi =
                      static_cast<std::size_t>(((k * w.shape()[1] + r) * w.shape()[2] + s) * gc + i);
                  y[at] += xv[xi] * wv[wi];
                  dx[xi] += gv[at] * wv[wi];
                  dw[wi] += gv[at] * xv[xi];
                }
              }
          }
  }
};

// A sum of n products below 1 in f32 (f64), then one rounding to the dtype.
double tolerance(DType dtype, std::int64_t n) {
  const double sums = dtype == DType::f64 ? epsilon_of(DType::f64) : epsilon_of(DType::f32);
  return static_cast<double>(n) * sums + epsilon_of(dtype);
}

TEST(Conv2d, ShapesFollowTheFormula) {
  EXPECT_EQ(conv2d_shape({2, 28, 28, 1}, {6, 5, 5, 1}, {.padding = {2, 2}}), (Shape{2, 28, 28, 6}));
  EXPECT_EQ(conv2d_shape({2, 224, 224, 3}, {64, 7, 7, 3}, {.stride = {2, 2}, .padding = {3, 3}}),
            (Shape{2, 112, 112, 64}));
  EXPECT_EQ(conv2d_shape({1, 9, 9, 4}, {8, 3, 3, 2}, {.dilation = {2, 3}, .groups = 2}), (Shape{1, 5, 3, 8}));
}

TEST(Conv2d, ThreeByThreeByHand) {
  // Rows 1 2 3 / 4 5 6 / 7 8 9 under the kernel 1 0 / 0 -1, not flipped: each value minus its lower right.
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1});
  const Tensor w = Tensor::from(std::vector<float>{1, 0, 0, -1}, {1, 2, 2, 1});
  for (const ConvImpl impl : kImpls)
    EXPECT_EQ(conv2d(x, w, {}, {.impl = impl}).to_vector(), (std::vector<double>{-4, -4, -4, -4}));
}

TEST(Conv2d, EveryPassMatchesDoubleReference) {
  for (const ConvCase& c : conv_cases()) {
    for (const DType dtype : test::kFloating) {
      const Tensor x = require_grad(values(c.x, dtype, 1)), w = require_grad(values(c.w, dtype, 2));
      const Shape out = conv2d_shape(c.x, c.w, c.params);
      const Tensor bias = require_grad(Tensor::zeros({out[3]}, {dtype}));
      const Tensor dy = values(out, dtype, 3);
      const Reference expected(x, w, dy, c.params);
      for (const ConvImpl impl : kImpls) {
        Conv2dParams params = c.params;
        params.impl = impl;
        for (const Tensor& leaf : {x, w, bias}) zero_grad(leaf);
        const Tensor y = conv2d(x, w, bias, params);
        backward(y, dy);
        const std::int64_t taps = c.w[1] * c.w[2], pixels = out[0] * out[1] * out[2];
        EXPECT_TRUE(close(y, expected.y, tolerance(dtype, taps * c.w[3]))) << name(c, dtype, impl);
        EXPECT_TRUE(close(grad_of(x), expected.dx, tolerance(dtype, taps * out[3]))) << name(c, dtype, impl);
        EXPECT_TRUE(close(grad_of(w), expected.dw, tolerance(dtype, pixels))) << name(c, dtype, impl);
        EXPECT_TRUE(close(grad_of(bias), expected.db, tolerance(dtype, pixels))) << name(c, dtype, impl);
      }
    }
  }
}

TEST(Conv2d, WritesAndAddsIntoTheGradientSlice) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const DType slices : {dtype, DType::f32}) {
      for (const ConvImpl impl : kImpls) {
        const Tensor x = values({2, 6, 6, 16}, dtype, 1), w = require_grad(values({16, 3, 3, 16}, dtype, 2));
        const Tensor bias = require_grad(values({16}, dtype, 3)), seed = values({2, 4, 4, 16}, dtype, 4);
        const Tensor w_slice = Tensor::empty(w.shape(), {slices}), b_slice = Tensor::empty({16}, {slices});
        kernels::fill(cpu_context(), w_slice, 99), kernels::fill(cpu_context(), b_slice, 99);
        leaf_of(w).bind(w_slice), leaf_of(bias).bind(b_slice);
        const Reference expected(x, w, seed, {});
        for (const double times : {1.0, 2.0}) {
          backward(conv2d(x, w, bias, {.impl = impl}), seed);
          std::vector<double> dw = expected.dw, db = expected.db;
          for (double& value : dw) value *= times;
          for (double& value : db) value *= times;
          EXPECT_TRUE(close(w_slice, dw, 2 * epsilon_of(slices)));
          EXPECT_TRUE(close(b_slice, db, 2 * epsilon_of(slices)));
        }
      }
    }
  }
}

TEST(Conv2d, EmptyBatchGivesNothingAndZeroGradients) {
  for (const ConvImpl impl : kImpls) {
    const Tensor x = require_grad(values({0, 6, 6, 3}, DType::f32, 1)),
                 w = require_grad(values({4, 3, 3, 3}, DType::f32, 2));
    const Tensor bias = require_grad(values({4}, DType::f32, 3));
    const Tensor y = conv2d(x, w, bias, {.impl = impl});
    EXPECT_EQ(y.shape(), (Shape{0, 4, 4, 4}));
    backward(y, Tensor::empty(y.shape()));
    EXPECT_EQ(grad_of(x).shape(), x.shape());
    EXPECT_EQ(grad_of(w).to_vector(), std::vector<double>(108, 0.0));
    EXPECT_EQ(grad_of(bias).to_vector(), std::vector<double>(4, 0.0));
  }
}

// oneDNN's own relu makes 0 of NaN, and a diverged run would look well.
TEST(Conv2d, NaNGoesThroughRelu) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t channels : {4, 32}) {
      const Tensor x = full({2, 6, 6, channels}, 1, {dtype, kCpu}),
                   w = full({16, 3, 3, channels}, 0.01, {dtype, kCpu}), bias = full({16}, NAN, {dtype, kCpu});
      const std::vector<double> y = conv2d(x, w, bias, {.activation = Activation::relu}).to_vector();
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }))
          << name_of(dtype) << " " << channels;
    }
  }
}

TEST(Conv2d, WithoutChannelsIsItsBias) {
  for (const ConvImpl impl : kImpls) {
    for (const bool with_bias : {true, false}) {
      const Tensor x = require_grad(Tensor::zeros({2, 5, 5, 0})),
                   w = require_grad(Tensor::zeros({3, 3, 3, 0}));
      const Tensor bias = require_grad(Tensor::from(std::vector<float>{1, -2, 3}, {3}));
      const Tensor y =
          conv2d(x, w, with_bias ? bias : Tensor(), {.activation = Activation::relu, .impl = impl});
      EXPECT_EQ(y.shape(), (Shape{2, 3, 3, 3}));
      std::vector<double> expected(54);
      for (std::size_t i = 0; i < 54 && with_bias; ++i) expected[i] = i % 3 == 0 ? 1 : i % 3 == 1 ? 0 : 3;
      EXPECT_EQ(y.to_vector(), expected);
      const Tensor dy = Tensor::empty(y.shape());
      kernels::fill(cpu_context(), dy, 1);
      backward(y, dy);
      EXPECT_EQ(grad_of(x).shape(), x.shape());
      EXPECT_EQ(grad_of(w).shape(), w.shape());
      if (with_bias) {
        EXPECT_EQ(grad_of(bias).to_vector(), (std::vector<double>{18, 0, 18}));
      }
    }
  }
}

TEST(Conv2d, SamePaddingEqualsAPaddedImage) {
  for (const auto& [r, s] : {std::pair{3, 3}, {2, 4}, {4, 5}, {1, 1}, {7, 2}}) {
    for (const std::int64_t dilation : {1, 2, 3}) {
      const Tensor x = require_grad(values({2, 5, 6, 4}, DType::f64, 1)),
                   w = require_grad(values({6, r, s, 2}, DType::f64, 2));
      const Conv2dParams same{.same_padding = true, .dilation = {dilation, dilation}, .groups = 2};
      // The definition: half of the zeros before x, rounded down, the others behind.
      const std::int64_t zeros[2] = {dilation * (r - 1), dilation * (s - 1)};
      const Shape wide = {2, 5 + zeros[0], 6 + zeros[1], 4};
      const Tensor padded = Tensor::zeros(wide, {DType::f64, kCpu});
      const auto inside = [&](const Tensor& t) {
        return narrow(narrow(t, 1, zeros[0] / 2, 5), 2, zeros[1] / 2, 6);
      };
      kernels::copy(cpu_context(), x, inside(padded));
      const Tensor dy = values({2, 5, 6, 6}, DType::f64, 3);
      const Reference expected(padded, w, dy, {.dilation = {dilation, dilation}, .groups = 2});
      const Tensor y = conv2d(x, w, {}, same);
      ASSERT_EQ(y.shape(), (Shape{2, 5, 6, 6}));
      EXPECT_TRUE(close(y, expected.y, 1e-14));
      backward(y, dy);
      EXPECT_TRUE(close(grad_of(w), expected.dw, 1e-14));
      EXPECT_TRUE(close(grad_of(x), inside(Tensor::from(expected.dx, wide)).to_vector(), 1e-14));
      gradcheck([&](std::span<const Tensor> in) { return conv2d(in[0], in[1], {}, same); }, std::array{x, w});
    }
  }
}

TEST(Conv2d, MistakesAreNamed) {
  const Tensor x = values({1, 4, 4, 2}, DType::f32, 1), w = values({3, 3, 3, 2}, DType::f32, 2);
  EXPECT_REFUSED(conv2d(values({1, 4, 2, 2}, DType::f32, 1), w), "width", "3", "2");
  EXPECT_REFUSED(conv2d(x, w, {}, {.dilation = {2, 1}}), "height", "5", "4");
  EXPECT_REFUSED(conv2d(x, w, {}, {.stride = {1, 2}, .same_padding = true}), "same_padding", "stride",
                 "padding", "2", "0");
  EXPECT_REFUSED(conv2d(x, w, {}, {.padding = {1, 1}, .same_padding = true}), "same_padding", "stride",
                 "padding", "1");
  EXPECT_THROW(conv2d(x, values({3, 3, 3, 1}, DType::f32, 2)), ArgumentError);
  EXPECT_THROW(conv2d(x, w, {}, {.groups = 2}), ArgumentError);
  EXPECT_THROW(conv2d(x, w, {}, {.stride = {0, 1}}), ArgumentError);
  EXPECT_THROW(conv2d(x, w, values({2}, DType::f32, 3)), ArgumentError);
  const Tensor every_other = values({6}, DType::f32, 3).view_as_strided({3}, Strides{2}, 0);
  EXPECT_REFUSED(conv2d(x, w, every_other), "bias", "f32 [3]", "strides");
  EXPECT_THROW(conv2d(x, values({3, 3, 3, 2}, DType::f64, 2)), ArgumentError);
  EXPECT_THROW(conv2d(values({4, 4, 2}, DType::f32, 1), w), ArgumentError);
  if (!cpu::has_onednn()) {
    EXPECT_THROW(conv2d(x, w, {}, {.impl = ConvImpl::vendor}), BackendError);
  }
}

TEST(Conv2d, VendorReportsUnsupportedShapes) {
  const Tensor x = values({1, 8, 8, 16}, DType::f64, 1), w = values({16, 3, 3, 16}, DType::f64, 2);
  EXPECT_ERROR(BackendError, conv2d(x, w, {}, {.impl = ConvImpl::vendor}), "conv2d", "oneDNN",
               cpu::has_onednn() ? "f64" : "oneDNN", "ConvImpl::automatic");
  if (!cpu::has_onednn()) return;
  const Tensor xf = values({1, 8, 8, 16}, DType::f32, 1), wf = values({16, 3, 3, 16}, DType::f32, 2);
  EXPECT_TRUE(close(conv2d(xf, wf, {}, {.impl = ConvImpl::vendor}),
                    Reference(xf, wf, Tensor::zeros({1, 6, 6, 16}), {}).y, tolerance(DType::f32, 144)));
}

}  // namespace athanor::conv_test
