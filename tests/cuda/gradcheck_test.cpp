#include "autograd/gradcheck.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "autograd/attention.h"
#include "autograd/conv.h"
#include "autograd/conv_transpose.h"
#include "autograd/dropout.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/interpolate.h"
#include "autograd/loss.h"
#include "autograd/matmul.h"
#include "autograd/norm.h"
#include "autograd/pool.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "autograd/similarity.h"
#include "autograd/softmax.h"
#include "kernels/elementwise_ops.h"
#include "tests/cuda/device.h"

namespace athanor::gradcheck_test {

using Inputs = std::span<const Tensor>;

struct OpCase {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(Inputs)> run;
};

Tensor targets() {
  return Tensor::from(std::vector<std::int64_t>{2, 0, 1, 2}, {4}, test::device());
}

// Kernels that are not instances of one functor: each op whose backward is written by hand.
std::vector<OpCase> cases() {
  const Conv2dParams strided{.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}};
  const Conv2dParams depthwise{.padding = {1, 1}, .groups = 4};
  const Conv2dParams grouped{.groups = 2, .activation = Activation::silu};
  const ConvTranspose2dParams upwards{.stride = {2, 1}, .padding = {1, 0}, .output_padding = {1, 0}};
  const BatchNormParams fused_relu{.activation = Activation::relu},
      fused_gelu{.activation = Activation::gelu};
  return {
      {"add_broadcast", {{3, 4}, {4}}, [](Inputs in) { return add(in[0], in[1]); }},
      {"div_broadcast", {{3, 1}, {4}}, [](Inputs in) { return div(in[0], affine(square(in[1]), 1, 1)); }},
      {"matmul", {{2, 3, 4}, {4, 5}}, [](Inputs in) { return matmul(in[0], in[1]); }},
      {"linear",
       {{5, 3}, {4, 3}, {4}},
       [](Inputs in) { return linear(in[0], in[1], in[2], Activation::gelu); }},
      {"conv2d",
       {{2, 5, 6, 3}, {4, 3, 2, 3}, {4}},
       [=](Inputs in) { return conv2d(in[0], in[1], in[2], strided); }},
      {"conv2d_depthwise",
       {{1, 4, 4, 4}, {4, 3, 3, 1}},
       [=](Inputs in) { return conv2d(in[0], in[1], {}, depthwise); }},
      {"conv2d_grouped",
       {{1, 3, 3, 4}, {2, 2, 2, 2}},
       [=](Inputs in) { return conv2d(in[0], in[1], {}, grouped); }},
      {"conv_transpose2d",
       {{2, 3, 2, 3}, {3, 3, 2, 4}, {4}},
       [=](Inputs in) { return conv_transpose2d(in[0], in[1], in[2], upwards); }},
      {"batch_norm",
       {{2, 2, 2, 3}, {3}, {3}, {2, 2, 2, 3}},
       [=](Inputs in) { return batch_norm(in[0], in[1], in[2], {}, {}, true, fused_relu, in[3]); }},
      {"batch_norm_gelu",
       {{6, 2}, {2}, {2}},
       [=](Inputs in) { return batch_norm(in[0], in[1], in[2], {}, {}, true, fused_gelu); }},
      {"layer_norm", {{3, 5}, {5}, {5}}, [](Inputs in) { return layer_norm(in[0], in[1], in[2]); }},
      {"group_norm", {{2, 3, 4}, {4}, {4}}, [](Inputs in) { return group_norm(in[0], 2, in[1], in[2]); }},
      {"instance_norm", {{2, 3, 2, 4}}, [](Inputs in) { return instance_norm(in[0]); }},
      {"max_pool2d",
       {{1, 5, 5, 2}},
       [](Inputs in) {
         return max_pool2d(in[0], {.window = {3, 3}, .padding = {1, 1}});
       }},
      {"max_pool2d_dilated",
       {{1, 5, 6, 2}},
       [](Inputs in) {
         return max_pool2d(in[0], {.stride = {1, 1}, .dilation = {2, 3}});
       }},
      {"avg_pool2d",
       {{1, 5, 5, 2}},
       [](Inputs in) {
         return avg_pool2d(in[0], {.padding = {1, 1}, .count_padding = false});
       }},
      {"adaptive_avg_pool2d", {{1, 5, 4, 2}}, [](Inputs in) { return adaptive_avg_pool2d(in[0], 3, 3); }},
      {"interpolate_nearest",
       {{1, 3, 4, 2}},
       [](Inputs in) {
         return interpolate(in[0], {.size = {5, 3}});
       }},
      {"interpolate_bilinear",
       {{1, 3, 4, 2}},
       [](Inputs in) {
         return interpolate(in[0], {.mode = Interpolation::bilinear, .scale = {1.7, 2}});
       }},
      {"softmax", {{3, 4}}, [](Inputs in) { return softmax(in[0], 0); }},
      {"log_softmax", {{3, 4}}, [](Inputs in) { return log_softmax(in[0], 1); }},
      {"cross_entropy", {{4, 3}}, [](Inputs in) { return cross_entropy(in[0], targets(), 0.1f); }},
      {"nll_loss", {{4, 3}}, [](Inputs in) { return nll_loss(in[0], targets(), Reduction::none); }},
      {"mse_loss", {{3, 4}, {3, 4}}, [](Inputs in) { return mse_loss(in[0], in[1]); }},
      {"cross_entropy_distribution",
       {{4, 3}, {4, 3}},
       [](Inputs in) { return cross_entropy(in[0], in[1], 0.1); }},
      {"cross_entropy_ignored",
       {{4, 3}},
       [](Inputs in) { return cross_entropy(in[0], targets(), {.ignore_index = 1}); }},
      {"bce_with_logits", {{3, 4}, {3, 4}}, [](Inputs in) { return bce_with_logits(in[0], in[1]); }},
      {"smooth_l1_loss", {{3, 4}, {3, 4}}, [](Inputs in) { return smooth_l1_loss(in[0], in[1], 0.5); }},
      {"cosine_similarity", {{3, 4}, {3, 4}}, [](Inputs in) { return cosine_similarity(in[0], in[1]); }},
      {"triplet_margin_loss",
       {{3, 4}, {3, 4}, {3, 4}},
       [](Inputs in) { return triplet_margin_loss(in[0], in[1], in[2], {.swap = true}); }},
      {"nt_xent_loss", {{3, 4}, {3, 4}}, [](Inputs in) { return nt_xent_loss(in[0], in[1]); }},
      {"attention",
       {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}},
       [](Inputs in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true}); }},
      {"var", {{3, 4}}, [](Inputs in) { return var(in[0], std::array{1}); }},
      {"max", {{3, 4}}, [](Inputs in) { return max(in[0], 1); }},
      {"sum",
       {{3, 4, 2}},
       [](Inputs in) {
         return sum(in[0], std::array{0, 2});
       }},
      {"permute",
       {{2, 3, 4}},
       [](Inputs in) {
         return square(contiguous(permute(in[0], {2, 0, 1})));
       }},
      {"dropout", {{5, 7}}, [](Inputs in) { return dropout(in[0], 0.5f, true); }},
      {"reused", {{3}}, [](Inputs in) { return mul(in[0], add(in[0], in[0])); }},
      {"empty", {{0, 3}}, [](Inputs in) { return softmax(relu(in[0]), 1); }},
  };
}

class GradcheckOnDevice : public test::DeviceTest, public testing::WithParamInterface<OpCase> {};

TEST_P(GradcheckOnDevice, CentralDifferencesAgree) {
  std::vector<Tensor> inputs;
  for (const Shape& shape : GetParam().shapes) {
    const Tensor x = test::filled({shape}, DType::f64, {inputs.size() + 1, 7}).to(test::device());
    require_grad(x);
    inputs.push_back(x);
  }
  gradcheck(GetParam().run, inputs);
}
INSTANTIATE_TEST_SUITE_P(Ops, GradcheckOnDevice, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

using GradcheckUnary = test::DeviceTest;

#define ATH_CHECK_UNARY(Op, name)                                                          \
  TEST_F(GradcheckUnary, name) {                                                           \
    const Tensor x = test::filled({{2, 5}}, DType::f64, {1}, 0.3, 1.7).to(test::device()); \
    require_grad(x);                                                                       \
    gradcheck([](Inputs in) { return athanor::name(in[0]); }, std::vector<Tensor>{x});     \
  }
ATH_UNARY_OPS(ATH_CHECK_UNARY)
#undef ATH_CHECK_UNARY

}  // namespace athanor::gradcheck_test
