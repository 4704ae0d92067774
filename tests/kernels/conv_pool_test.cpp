// A convolution with 2 x 2 max pooling and ReLU in one pass, or where there is no code for it, in three.
// conv_list_test.cpp tests the code.
#include "autograd/conv_norm.h"
#include "autograd/grad_mode.h"
#include "autograd/packed_model.h"
#include "kernels/packed_weights.h"
#include "nn/models/model.h"
#include "tests/support/conv_values.h"
#include "tests/support/ops.h"

namespace athanor::conv_pool_test {

using test::close;
using test::ConvCase;
using test::name;
using test::values;
using test::wide;

/// The op in a scope with packed weights.
Tensor packed(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params) {
  const PackedModel model;
  const InferenceMode inference(model);
  return conv_pool_relu(x, {w, bias, params});
}

struct Operands {
  Tensor x, w, bias;

  explicit Operands(const ConvCase& c)
      : x(values(c.x, DType::f32, 1)), w(values(c.w, DType::f32, 2)), bias(values({c.w[0]}, DType::f32, 3)) {}
};

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
    const Tensor expected =
        relu(max_pool2d(conv2d(wide(operands.x), wide(operands.w), wide(operands.bias), c.params)));
    EXPECT_TRUE(close(packed(operands.x, operands.w, operands.bias, c.params), expected, 2e-6))
        << name(c, DType::f32, c.params.impl);
  }
}

TEST(ConvPool, TakesAViewAndNoImages) {
  const ConvCase c{{4, 8, 8, 2}, {5, 3, 3, 2}, {.padding = {1, 1}}};
  const Operands operands(c);
  const Tensor turned = operands.x.view_as_strided({4, 8, 8, 2}, {128, 2, 16, 1}, 0);
  const Tensor expected =
      relu(max_pool2d(conv2d(wide(turned), wide(operands.w), wide(operands.bias), c.params)));
  EXPECT_TRUE(close(packed(turned, operands.w, operands.bias, c.params), expected, 2e-6));
  EXPECT_EQ(packed(Tensor::empty({0, 8, 8, 2}), operands.w, operands.bias, c.params).shape(),
            Shape({0, 4, 4, 5}));
  EXPECT_THROW(packed(Tensor::empty({1, 1, 1, 2}), values({5, 1, 1, 2}, DType::f32, 1), {}, {}),
               ArgumentError)
      << "a window larger than what the convolution gives";
}

TEST(ConvPool, LeNetRecordsTheSameNetwork) {
  const auto network = nn::make_model("lenet5", {}, 1);
  network->eval();
  const Tensor x = values({3, 28, 28, 1}, DType::f32, 5);
  const Tensor recorded = (*network)(x);
  const PackedModel model;
  const InferenceMode inference(model);
  EXPECT_TRUE(close((*network)(x), recorded, 1e-5));
}

}  // namespace athanor::conv_pool_test
