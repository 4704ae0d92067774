// A convolution with 2 x 2 max pooling and ReLU in one pass, against the three of them in f64.
#include "kernels/cpu/conv_pool.h"

#include "autograd/grad_mode.h"
#include "kernels/packed_weights.h"
#include "nn/conv2d.h"
#include "nn/models/lenet.h"
#include "tests/support/conv_values.h"
#include "tests/support/ops.h"

namespace athanor::conv_pool_test {

using test::close;
using test::ConvCase;
using test::name;
using test::values;
using test::wide;

std::vector<ConvCase> cases() {
  return {
      {{3, 28, 28, 1}, {6, 5, 5, 1}, {.padding = {2, 2}}},  // LeNet-5's
      {{3, 14, 14, 6}, {16, 5, 5, 6}, {}},                  // one tile a row, read where it lies
      {{2, 9, 7, 3}, {5, 3, 3, 3}, {.padding = {1, 1}}},    // a last row and column that no window takes
      {{2, 9, 7, 3}, {17, 3, 3, 3}, {.padding = {1, 1}}},   // one channel more than a vector
      {{1, 4, 70, 2}, {4, 3, 2, 2}, {.padding = {0, 1}}},   // three tiles a row, the last one short
      {{1, 4, 70, 2}, {40, 2, 3, 2}, {.padding = {1, 0}}},  // tiles of 5 and of 6 pairs
      {{2, 2, 2, 8}, {1, 1, 1, 8}, {}},                     // one pixel is left
      {{2, 3, 2, 8}, {20, 1, 1, 8}, {.padding = {3, 3}}},   // more padding than image
      {{2, 6, 6, 1}, {3, 5, 1, 1}, {.padding = {4, 0}}},    // windows of nothing but padding
      {{7, 64, 64, 4}, {6, 5, 5, 4}, {.padding = {2, 2}}},  // enough for several threads
      {{7, 64, 64, 4}, {32, 5, 5, 4}, {.padding = {2, 2}}},
  };
}

bool can_run(const ConvCase& c) {
  return cpu::conv_pool_fits(ConvSize(c.x, c.w, conv2d_shape(c.x, c.w, c.params), c.params));
}

struct Operands {
  Tensor x, w, bias;

  explicit Operands(const ConvCase& c, test::Values of = values)
      : x(of(c.x, DType::f32, 1)), w(of(c.w, DType::f32, 2)), bias(of({c.w[0]}, DType::f32, 3)) {}

  /// By the kernel alone.
  Tensor fused(const ConvCase& c, bool with_bias) const {
    const Shape z = conv2d_shape(c.x, c.w, c.params);
    const Tensor y = Tensor::empty({z[0], z[1] / 2, z[2] / 2, z[3]});
    const kernels::PackedWeights packed(w, with_bias ? bias : Tensor());
    EXPECT_TRUE(kernels::conv2d_pool_packed(cpu_context(), c.params, x, packed, y));
    return y;
  }
};

TEST(ConvPool, MatchesItsThreePartsInDouble) {
  for (const ConvCase& c : cases()) {
    if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
    const Operands operands(c);
    for (const bool with_bias : {true, false}) {
      const Tensor expected = relu(max_pool2d(
          conv2d(wide(operands.x), wide(operands.w), with_bias ? wide(operands.bias) : Tensor(), c.params)));
      EXPECT_TRUE(close(operands.fused(c, with_bias), expected, 2e-6))
          << name(c, DType::f32, ConvImpl::automatic);
    }
  }
}

TEST(ConvPool, SameBitsByAnyNumberOfThreads) {
  for (const ConvCase& c : cases()) {
    if (!can_run(c)) GTEST_SKIP() << "this CPU has no AVX2";
    SCOPED_TRACE(name(c, DType::f32, ConvImpl::automatic));
    const Operands operands(c, test::rounded_values);
    test::expect_same_by_threads([&] { return std::vector{operands.fused(c, true)}; });
  }
}

TEST(ConvPool, FallsBackToItsParts) {
  const std::vector<ConvCase> others = {
      {{2, 8, 8, 9}, {6, 3, 3, 9}, {}},  // more channels than it is for
      {{2, 8, 8, 3}, {6, 3, 3, 3}, {.stride = {2, 2}}},
      {{2, 8, 8, 3}, {6, 3, 3, 3}, {.dilation = {2, 1}}},
      {{2, 8, 8, 4}, {6, 3, 3, 2}, {.groups = 2}},
      {{2, 8, 8, 3}, {6, 3, 3, 3}, {.same_padding = true}},
      {{2, 8, 8, 3}, {6, 3, 3, 3}, {.activation = Activation::relu}},
      {{2, 8, 8, 3}, {6, 3, 3, 3}, {.impl = ConvImpl::reference}},
  };
  for (const ConvCase& c : others) {
    const Operands operands(c);
    const kernels::PackedWeights packed(operands.w, operands.bias);
    const Tensor expected =
        relu(max_pool2d(conv2d(wide(operands.x), wide(operands.w), wide(operands.bias), c.params)));
    EXPECT_TRUE(close(conv2d_pool_packed(operands.x, packed, c.params), expected, 2e-6))
        << name(c, DType::f32, c.params.impl);
  }
}

TEST(ConvPool, TakesAViewAndNoImages) {
  const ConvCase c{{4, 8, 8, 2}, {5, 3, 3, 2}, {.padding = {1, 1}}};
  const Operands operands(c);
  const kernels::PackedWeights packed(operands.w, operands.bias);
  const Tensor turned = operands.x.view_as_strided({4, 8, 8, 2}, {128, 2, 16, 1}, 0);
  const Tensor expected =
      relu(max_pool2d(conv2d(wide(turned), wide(operands.w), wide(operands.bias), c.params)));
  EXPECT_TRUE(close(conv2d_pool_packed(turned, packed, c.params), expected, 2e-6));
  EXPECT_EQ(conv2d_pool_packed(Tensor::empty({0, 8, 8, 2}), packed, c.params).shape(), Shape({0, 4, 4, 5}));
  EXPECT_THROW(conv2d_pool_packed(Tensor::empty({1, 1, 1, 2}),
                                  kernels::PackedWeights(values({5, 1, 1, 2}, DType::f32, 1), {}), {}),
               ArgumentError)
      << "a window larger than what the convolution gives";
}

TEST(ConvPool, LeNetRecordsTheSameNetwork) {
  nn::LeNet5 network({.classes = 10, .in_channels = 1, .image_size = 28});
  network.initialize(1);
  network.eval();
  const Tensor x = values({3, 28, 28, 1}, DType::f32, 5);
  const Tensor recorded = network(x);
  network.pack_weights();
  const InferenceMode inference;
  EXPECT_TRUE(close(network(x), recorded, 1e-5));
}

}  // namespace athanor::conv_pool_test
