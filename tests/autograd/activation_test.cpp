// Every activation of the list, wherever an op or a module takes one as an option.
#include "kernels/activation.h"

#include "nn/activation.h"
#include "tests/support/activations.h"
#include "tests/support/ops.h"
#include "tests/support/waves.h"

namespace athanor::activation_test {

using test::activated;
using test::cast_to;
using test::wave;

class AnActivation : public testing::TestWithParam<Activation> {};

Tensor leaf(const Shape& shape, DType dtype, double phase) {
  return require_grad(cast_to(wave(shape, 0.1, phase), dtype));
}

// Whether an op that takes the activation as an option, and the activation after the op, have the same result
// and gradients. `op`(inputs, activation).
template <class F>
void expect_same(const F& op, const std::vector<Tensor>& inputs, Activation activation, double tolerance) {
  std::vector<std::vector<double>> outcomes[2];
  for (const bool fused : {true, false}) {
    for (const Tensor& input : inputs) zero_grad(input);
    const Tensor y = fused ? op(inputs, activation) : activated(activation, op(inputs, Activation::none));
    backward(y, cast_to(wave(y.shape(), 0.2, 5), y.dtype()));
    auto& outcome = outcomes[fused];
    outcome.push_back(y.to_vector());
    for (const Tensor& input : inputs) outcome.push_back(grad_of(input).to_vector());
  }
  for (std::size_t i = 0; i < outcomes[0].size(); ++i)
    EXPECT_LE(test::max_relative_error(outcomes[1][i], outcomes[0][i]), tolerance) << "result " << i;
}

TEST_P(AnActivation, FusedEqualsTheOpFollowedByIt) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const double tolerance = (dtype == DType::f64 ? 64 : 4) * test::epsilon_of(dtype);
    const DType stats = test::stats_dtype(dtype);
    expect_same([](const auto& in, Activation a) { return linear(in[0], in[1], in[2], a); },
                {leaf({9, 8}, dtype, 0), leaf({6, 8}, dtype, 1), leaf({6}, dtype, 2)}, GetParam(), tolerance);
    for (const std::int64_t groups : {1, 2}) {
      expect_same(
          [=](const auto& in, Activation a) {
            return conv2d(in[0], in[1], in[2], {.padding = {1, 1}, .groups = groups, .activation = a});
          },
          {leaf({2, 6, 5, 4}, dtype, 0), leaf({6, 3, 3, 4 / groups}, dtype, 1), leaf({6}, dtype, 2)},
          GetParam(), tolerance);
    }
    expect_same([](const auto& in,
                   Activation a) { return batch_norm(in[0], in[1], in[2], {}, {}, true, {.activation = a}); },
                {leaf({20, 6}, dtype, 0), leaf({6}, stats, 1), leaf({6}, stats, 2)}, GetParam(),
                4 * tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AnActivation, testing::ValuesIn(test::kActivations),
                         [](const auto& activation) { return std::string(test::name_of(activation.param)); });

// Every unary op is a module, too.
TEST(Activations, AreModules) {
  const Tensor x = cast_to(wave({20}, 2), DType::f32);
#define ATH_EXPECT(Op, name) EXPECT_TRUE(test::same_bits(nn::Op().forward(x), name(x)));
  ATH_UNARY_OPS(ATH_EXPECT)
#undef ATH_EXPECT
  EXPECT_TRUE(test::same_bits(nn::LeakyRelu().forward(x), leaky_relu(x, 0.01)));
  EXPECT_TRUE(test::same_bits(nn::LeakyRelu(0.3).forward(x), leaky_relu(x, 0.3)));
  EXPECT_TRUE(test::same_bits(nn::Elu().forward(x), elu(x, 1)));
  EXPECT_TRUE(test::same_bits(nn::Elu(2).forward(x), elu(x, 2)));
  EXPECT_TRUE(test::same_bits(nn::Softplus().forward(x), softplus(x, 1, 20)));
  EXPECT_TRUE(test::same_bits(nn::Softplus(2, 1).forward(x), softplus(x, 2, 1)));
}

}  // namespace athanor::activation_test
