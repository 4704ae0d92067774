// Convolutions of few output pixels with packed filters, against the definition in f64.
#include "kernels/cpu/conv_few_pixels.h"

#include <limits>
#include <string_view>

#include "kernels/packed_weights.h"
#include "tests/support/conv_values.h"
#include "tests/support/ops.h"

namespace athanor::conv_few_pixels_test {

using test::close;
using test::ConvCase;
using test::name;
using test::rounded_values;
using test::values;
using test::wide;

constexpr std::string_view kName = "few pixels, ";

// All with filters large enough for it.
std::vector<ConvCase> cases() {
  return {
      {{1, 4, 4, 256}, {512, 3, 3, 256}, {.padding = {1, 1}}},  // the end of a ResNet-18
      {{1, 8, 8, 128}, {256, 3, 3, 128}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{1, 8, 8, 256}, {512, 1, 1, 256}, {.stride = {2, 2}}},
      {{1, 7, 7, 512}, {272, 1, 1, 512}, {}},                   // 49 pixels, half a panel
      {{1, 1, 1, 512}, {256, 1, 1, 512}, {}},                   // one pixel
      {{3, 2, 3, 130}, {128, 3, 3, 130}, {.padding = {1, 1}}},  // depth no multiple of a chunk
      {{2, 9, 8, 40}, {144, 5, 5, 40}, {.padding = {2, 0}, .dilation = {2, 1}}},
      {{1, 3, 3, 128}, {128, 3, 3, 128}, {.stride = {2, 1}, .padding = {5, 4}}},  // pixels of padding alone
  };
}

struct Operands {
  Tensor x, w, bias, residual;

  explicit Operands(const ConvCase& c, test::Values of = values)
      : x(of(c.x, DType::f32, 1)),
        w(of(c.w, DType::f32, 2)),
        bias(of({c.w[0]}, DType::f32, 3)),
        residual(of(conv2d_shape(c.x, c.w, c.params), DType::f32, 4)) {}

  Tensor packed(Conv2dParams params, bool with_bias, bool with_residual) const {
    const kernels::PackedWeights weights(w, with_bias ? bias : Tensor());
    const Tensor y = Tensor::empty(residual.shape());
    kernels::conv2d_packed(cpu_context(), params, x, weights, with_residual ? residual : Tensor(), y);
    return y;
  }
};

bool can_run(const ConvCase& c) {
  return cpu::conv_few_pixels_fits(ConvSize(c.x, c.w, conv2d_shape(c.x, c.w, c.params), c.params));
}

// Number of primitives of ours in the cache.
std::ptrdiff_t count_of_ours() {
  const auto all = cpu_context().primitives().contents();
  return std::count_if(all.begin(), all.end(),
                       [](const auto& one) { return one.implementation.starts_with(kName); });
}

TEST(ConvFewPixels, MatchesTheDefinitionInDouble) {
  for (const ConvCase& c : cases()) {
    if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
    const Operands operands(c);
    for (const bool with_bias : {true, false}) {
      for (const bool with_residual : {true, false}) {
        for (const Activation activation : {Activation::none, Activation::relu, Activation::silu}) {
          Conv2dParams params = c.params;
          params.activation = activation;
          const std::ptrdiff_t before = count_of_ours();
          const Tensor y = operands.packed(params, with_bias, with_residual);
          const bool is_new = activation != Activation::silu;  // which follows in a pass of its own
          EXPECT_EQ(count_of_ours(), before + (is_new ? 1 : 0));
          Tensor expected = conv2d(wide(operands.x), wide(operands.w),
                                   with_bias ? wide(operands.bias) : Tensor(), c.params);
          if (with_residual) expected = expected + wide(operands.residual);
          if (activation == Activation::relu) expected = relu(expected);
          if (activation == Activation::silu) expected = silu(expected);
          EXPECT_TRUE(close(y, expected, 2e-6))
              << name(c, DType::f32, ConvImpl::automatic) << with_bias << with_residual;
        }
      }
    }
  }
}

// Not ours, but with the same call: oneDNN adds a wrong residual to such pixels.
TEST(ConvFewPixels, AResidualIsRightOnPixelsOfPaddingAlone) {
  const ConvCase c{{2, 3, 3, 128}, {128, 3, 3, 128}, {.stride = {2, 1}, .padding = {5, 4}}};
  const Operands operands(c);
  const Tensor expected = conv2d(wide(operands.x), wide(operands.w), wide(operands.bias), c.params);
  EXPECT_TRUE(close(operands.packed(c.params, true, false), expected, 2e-6));
  EXPECT_TRUE(close(operands.packed(c.params, true, true), expected + wide(operands.residual), 2e-6));
}

TEST(ConvFewPixels, SameBitsByAnyNumberOfThreads) {
  for (const ConvCase& c : cases()) {
    if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
    const Operands operands(c, rounded_values);
    test::expect_same_by_threads([&] { return std::vector{operands.packed(c.params, true, true)}; },
                                 {2, 3, 16});
  }
}

TEST(ConvFewPixels, ReluKeepsNan) {
  const ConvCase c = cases().front();
  if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
  const Operands operands(c);
  operands.x.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  Conv2dParams params = c.params;
  params.activation = Activation::relu;
  const auto y = operands.packed(params, true, false).to_vector();
  EXPECT_TRUE(std::isnan(y[0]));              // the filter of pixel (0, 0) covers it
  EXPECT_FALSE(std::isnan(y[y.size() - 1]));  // that of pixel (3, 3) does not
}

TEST(ConvFewPixels, LeavesOthersAlone) {
  const std::vector<ConvCase> others = {
      {{2, 8, 8, 128}, {256, 3, 3, 128}, {.padding = {1, 1}}},  // 128 pixels
      {{1, 4, 4, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}},     // small filters
      {{1, 4, 4, 256}, {500, 3, 3, 256}, {.padding = {1, 1}}},  // 500 channels
      {{1, 4, 4, 256}, {512, 3, 3, 128}, {.padding = {1, 1}, .groups = 2}},
      {{1, 4, 4, 256}, {512, 3, 3, 256}, {.padding = {1, 1}, .impl = ConvImpl::reference}},
  };
  for (const ConvCase& c : others) {
    const Operands operands(c);
    const std::ptrdiff_t before = count_of_ours();
    const Tensor y = operands.packed(c.params, true, false);
    EXPECT_EQ(count_of_ours(), before) << name(c, DType::f32, c.params.impl);
    EXPECT_TRUE(close(y, conv2d(wide(operands.x), wide(operands.w), wide(operands.bias), c.params), 4e-6));
  }
}

}  // namespace athanor::conv_few_pixels_test
