#include "autograd/interpolate.h"

#include "nn/upsample.h"
#include "tests/support/ops.h"
#include "tests/support/waves.h"

namespace athanor::interpolate_test {

using test::close;
using test::filled;
using test::same_bits;

/// What output o reads along an axis, by the formulas of PyTorch's documentation, in double but for the
/// nearest input.
struct Corners {
  std::int64_t low, high;
  double weight;
};
Corners corners(const InterpolateParams& params, int axis, std::int64_t inputs, std::int64_t outputs,
                std::int64_t o) {
  const double in = static_cast<double>(inputs), out = static_cast<double>(outputs),
               at = static_cast<double>(o);
  const double scale = params.scale[axis] > 0 ? 1 / params.scale[axis] : in / out;
  if (params.mode == Interpolation::nearest) {
    const auto i = static_cast<std::int64_t>(static_cast<float>(o) * static_cast<float>(scale));
    return {std::min(i, inputs - 1), std::min(i, inputs - 1), 0};
  }
  double position = std::max((at + 0.5) * scale - 0.5, 0.0);
  if (params.align_corners) position = outputs > 1 ? at * (in - 1) / (out - 1) : 0;
  const std::int64_t low = std::min(static_cast<std::int64_t>(position), inputs - 1);
  return {low, std::min(low + 1, inputs - 1), std::min(position - static_cast<double>(low), 1.0)};
}

/// y and dx, one output after the other.
struct Reference {
  std::vector<double> y, dx;

  Reference(const Tensor& x, const Tensor& dy, const InterpolateParams& params) {
    const std::vector<double> in = x.to_vector(), gradient = dy.to_vector();
    const std::int64_t H = x.dim(1), W = x.dim(2), C = x.dim(3), P = dy.dim(1), Q = dy.dim(2);
    y.resize(gradient.size()), dx.resize(in.size());
    for (std::int64_t i = 0; i < dy.numel(); ++i) {
      const std::int64_t c = i % C, q = i / C % Q, p = i / C / Q % P, n = i / C / Q / P;
      const Corners rows = corners(params, 0, H, P, p), columns = corners(params, 1, W, Q, q);
      for (const auto& [h, row] : {std::pair{rows.low, 1 - rows.weight}, {rows.high, rows.weight}}) {
        for (const auto& [w, column] :
             {std::pair{columns.low, 1 - columns.weight}, {columns.high, columns.weight}}) {
          const auto from = static_cast<std::size_t>(((n * H + h) * W + w) * C + c);
          y[static_cast<std::size_t>(i)] += row * column * in[from];
          dx[from] += row * column * gradient[static_cast<std::size_t>(i)];
        }
      }
    }
  }
};

TEST(Interpolate, NearestByHand) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {1, 2, 2, 1});
  EXPECT_EQ(interpolate(x, {.scale = {2, 1.5}}).to_vector(),
            (std::vector<double>{1, 1, 2, 1, 1, 2, 3, 3, 4, 3, 3, 4}));
  require_grad(x);
  const Tensor y = interpolate(x, {.size = {1, 3}});
  EXPECT_EQ(y.to_vector(), (std::vector<double>{1, 1, 2}));
  backward(y, Tensor::from(std::vector<float>{10, 20, 30}, {1, 1, 3, 1}));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{30, 30, 0, 0}));
}

// Values of torch.nn.functional.interpolate, PyTorch 2.15.
TEST(Interpolate, BilinearAsPyTorch) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 4, 8}, {1, 1, 4, 1});
  const auto row = [&](std::int64_t size, bool align) {
    return interpolate(x, {.mode = Interpolation::bilinear, .align_corners = align, .size = {1, size}});
  };
  EXPECT_TRUE(close(row(8, false), std::vector<double>{1, 1.25, 1.75, 2.5, 3.5, 5, 7, 8}, 1e-7));
  EXPECT_TRUE(close(row(7, true), std::vector<double>{1, 1.5, 2, 3, 4, 6, 8}, 1e-7));
  EXPECT_TRUE(close(row(3, false), std::vector<double>{1 + 1.0 / 6, 3, 7 + 1.0 / 3}, 1e-6));
  EXPECT_TRUE(close(row(1, true), std::vector<double>{1}, 1e-7));
}

// A table of which outputs read an input, made by asking all of them, for many sizes: what readers() finds.
TEST(Interpolate, EveryGradientArrivesOnce) {
  for (std::int64_t in = 1; in <= 40; in += 3) {
    for (std::int64_t out = 1; out <= 60; ++out) {
      for (const auto& [mode, align] : {std::pair{Interpolation::nearest, false},
                                        {Interpolation::bilinear, false},
                                        {Interpolation::bilinear, true}}) {
        const InterpolateParams params{.mode = mode, .align_corners = align, .size = {1, out}};
        const Tensor x = require_grad(Tensor::zeros({1, 1, in, 1}));
        const Tensor y = interpolate(x, params), dy = filled({y.shape()}, DType::f32, {1});
        backward(y, dy);
        ASSERT_TRUE(close(grad_of(x), Reference(x, dy, params).dx, 1e-4))
            << in << " to " << out << (align ? " aligned" : "");
      }
    }
  }
}

TEST(Interpolate, NearestCopiesEveryDtype) {
  for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::boolean}) {
    const Tensor x = filled({{2, 3, 4, 3}}, dtype, {1}, 0, 9);
    EXPECT_EQ(interpolate(x, {.scale = {2, 2}}).to_vector(),
              Reference(x, Tensor::zeros({2, 6, 8, 3}), {.scale = {2, 2}}).y);
  }
  const Tensor x = Tensor::from(std::vector<float>{NAN, -INFINITY, -0.0f, INFINITY}, {1, 1, 4, 1});
  const Tensor y = interpolate(x, {.size = {1, 8}});
  for (std::int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y.data<float>()[i]),
              std::bit_cast<std::uint32_t>(x.data<float>()[i / 2]));
}

// Infinity, too, for the rows have a weight of 0: so does PyTorch.
TEST(Interpolate, BilinearMakesNaNOfInfinityAndSpreadsIt) {
  const Tensor x = Tensor::from(std::vector<float>{0, 1, INFINITY, 1, 0, NAN}, {1, 1, 6, 1});
  const std::vector<double> y =
      interpolate(x, {.mode = Interpolation::bilinear, .scale = {1, 2}}).to_vector();
  const std::vector<double> expected = {0, 0.25, 0.75, NAN, NAN, NAN, NAN, 0.75, 0.25, NAN, NAN, NAN};
  ASSERT_EQ(y.size(), expected.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_TRUE(y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i]))) << i << ": " << y[i];
}

TEST(Interpolate, EmptyBatchAndNoChannels) {
  for (const Shape& shape : {Shape{0, 4, 4, 3}, Shape{2, 4, 4, 0}}) {
    for (const auto mode : {Interpolation::nearest, Interpolation::bilinear}) {
      const Tensor x = require_grad(Tensor::zeros(shape));
      const Tensor y = interpolate(x, {.mode = mode, .scale = {2, 2}});
      EXPECT_EQ(y.shape(), (Shape{shape[0], 8, 8, shape[3]}));
      backward(y, y.detach());
      EXPECT_EQ(grad_of(x).shape(), shape);
    }
  }
}

TEST(Interpolate, MistakesAreNamed) {
  const Tensor x = Tensor::zeros({1, 4, 4, 2});
  const auto bilinear = Interpolation::bilinear;
  EXPECT_NO_THROW(interpolate(x, {.size = {2, 3}}));
  EXPECT_REFUSED(interpolate({}, {.size = {2, 3}}), "x", "[N, H, W, C]", "undefined");
  EXPECT_REFUSED(interpolate(Tensor::zeros({4, 4}), {.size = {2, 3}}), "x", "[N, H, W, C]", "[4, 4]");
  EXPECT_REFUSED(interpolate(Tensor::zeros({1, 0, 4, 2}), {.size = {2, 3}}), "H", "W", "[1, 0, 4, 2]");
  EXPECT_ERROR(
      ArgumentError,
      interpolate(Tensor::zeros({1, 4, 4, 2}, {DType::u8, kCpu}), {.mode = bilinear, .size = {2, 3}}),
      "interpolate", "x", "bilinear", "u8");
  EXPECT_REFUSED(interpolate(x, {.align_corners = true, .size = {2, 3}}), "align_corners", "nearest");
  EXPECT_REFUSED(interpolate(x, {}), "size", "scale", "0 x 0");
  EXPECT_REFUSED(interpolate(x, {.size = {2, 3}, .scale = {0, 2}}), "size", "scale", "2 x 3", "0 x 2");
  EXPECT_REFUSED(interpolate(x, {.size = {2, 0}}), "16777216", "4", "0");
  EXPECT_REFUSED(interpolate(x, {.size = {2, -3}}), "16777216", "4", "-3");
  EXPECT_REFUSED(interpolate(x, {.scale = {2, 0.2}}), "scale", "16777216", "4", "0.2");
  EXPECT_REFUSED(interpolate(x, {.scale = {NAN, 2}}), "scale", "16777216", "4", "nan");
  EXPECT_REFUSED(interpolate(x, {.scale = {INFINITY, 2}}), "scale", "16777216", "4", "inf");
}

TEST(PixelShuffle, ChannelsBecomePixelsAndBack) {
  // Channels 10 c + 2 i + j of each pixel go to row i and column j of channel c.
  const Tensor x = Tensor::from(
      std::vector<float>{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33}, {1, 1, 2, 8});
  const Tensor y = pixel_shuffle(x, 2);
  EXPECT_EQ(y.shape(), (Shape{1, 2, 4, 2}));
  EXPECT_EQ(y.to_vector(), (std::vector<double>{0, 10, 1, 11, 20, 30, 21, 31, 2, 12, 3, 13, 22, 32, 23, 33}));
  EXPECT_EQ(pixel_unshuffle(y, 2).to_vector(), x.to_vector());
  for (const DType dtype : {DType::bf16, DType::f64, DType::u8, DType::i64}) {
    const Tensor wide = filled({{2, 3, 4, 18}}, dtype, {1}, 0, 100);
    EXPECT_TRUE(same_bits(pixel_unshuffle(pixel_shuffle(wide, 3), 3), wide));
    EXPECT_TRUE(same_bits(pixel_shuffle(wide, 1), wide));
  }
  EXPECT_EQ(pixel_shuffle(Tensor::zeros({0, 2, 2, 4}), 2).shape(), (Shape{0, 4, 4, 1}));
}

TEST(PixelShuffle, MistakesAreNamed) {
  const Tensor x = Tensor::zeros({1, 4, 6, 6});
  EXPECT_REFUSED(pixel_shuffle(x, 2), "r^2", "2", "[1, 4, 6, 6]");
  EXPECT_REFUSED(pixel_shuffle(x, 0), "r", "1", "32768", "0");
  EXPECT_REFUSED(pixel_unshuffle(x, std::int64_t{1} << 40), "r", "1", "32768", "1099511627776");
  EXPECT_REFUSED(pixel_unshuffle(x, 3), "r", "H", "W", "3", "[1, 4, 6, 6]");
  EXPECT_REFUSED(pixel_unshuffle(Tensor::zeros({4, 6}), 2), "x", "[N, H, W, C]", "[4, 6]");
}

TEST(UpsampleModule, CallsTheFunctions) {
  const Tensor x = filled({{1, 3, 2, 4}}, DType::f32, {1});
  EXPECT_TRUE(same_bits(nn::Upsample(2)(x), interpolate(x, {.scale = {2, 2}})));
  const InterpolateParams smooth{.mode = Interpolation::bilinear, .align_corners = true, .size = {5, 5}};
  EXPECT_TRUE(same_bits(nn::Upsample(smooth)(x), interpolate(x, smooth)));
  EXPECT_TRUE(same_bits(nn::Upsample(3, Interpolation::bilinear)(x),
                        interpolate(x, {.mode = Interpolation::bilinear, .scale = {3, 3}})));
  EXPECT_TRUE(same_bits(nn::PixelShuffle(2)(x), pixel_shuffle(x, 2)));
  EXPECT_TRUE(same_bits(nn::PixelUnshuffle(2)(nn::PixelShuffle(2)(x)), x));
}

}  // namespace athanor::interpolate_test
