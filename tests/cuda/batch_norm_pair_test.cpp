// ReLU of the sum of two norms, as one op, against one norm after the other: the same bits.
#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "nn/models/model.h"
#include "tests/cuda/ops.h"

namespace athanor::batch_norm_pair_test {

using NormPairOnDevice = test::DeviceTest;
using test::filled;
using test::Layout;
using test::same_bits;

const test::ShapeCase kShapes[] = {{{2, 8}},    {{33, 8}}, {{2, 5, 7, 16}}, {{300, 24}},
                                   {{4500, 8}}, {{9, 72}}, {{700, 1032}},   {{41, 16}, Layout::misaligned}};

BatchNormTerm term(const test::ShapeCase& wanted, DType dtype, std::uint64_t key, Activation activation) {
  const Shape channels{wanted.shape[wanted.shape.rank() - 1]};
  const DType stats = test::wide_dtype(dtype);
  BatchNormTerm result;
  result.x = test::on_device_like(filled(wanted, dtype, {key}, -1, 3));
  result.gamma = filled({channels}, stats, {key + 1}, 0.5, 1.5).to(test::device());
  result.beta = filled({channels}, stats, {key + 2}).to(test::device());
  result.running_mean = Tensor::zeros(channels, {stats, test::device()});
  result.running_var = ones(channels, {stats, test::device()});
  result.params.activation = activation;
  return result;
}

struct Outcome {
  std::vector<Tensor> tensors;
  std::string op;
};

/// `frozen`: bit i: input i of x, gamma, beta of both needs no gradient.
Outcome run(const test::ShapeCase& wanted, DType dtype, bool together, unsigned frozen) {
  const BatchNormTerm a = term(wanted, dtype, 1, Activation::relu),
                      b = term(wanted, dtype, 11, Activation::none);
  const Tensor inputs[] = {a.x, a.gamma, a.beta, b.x, b.gamma, b.beta};
  for (unsigned i = 0; i < 6; ++i) {
    if ((frozen >> i & 1u) == 0) require_grad(inputs[i]);
  }
  Tensor y;
  if (together) {
    EXPECT_TRUE(fuses_batch_norm_pair(a, b, true));
    y = batch_norm_pair(a, b, true);
  } else {
    y = batch_norm(a.x, a.gamma, a.beta, a.running_mean, a.running_var, true, a.params,
                   batch_norm(b.x, b.gamma, b.beta, b.running_mean, b.running_var, true, b.params));
  }
  Outcome outcome{{y.detach(), a.running_mean, a.running_var, b.running_mean, b.running_var}, {}};
  if (!y.requires_grad()) return outcome;
  backward(y, test::on_device_like(filled(wanted, dtype, {21})));
  for (unsigned i = 0; i < 6; ++i) {
    if ((frozen >> i & 1u) == 0) outcome.tensors.push_back(grad_of(inputs[i]));
  }
  return outcome;
}

TEST_F(NormPairOnDevice, HasTheBitsOfOneNormAfterTheOther) {
  for (const DType dtype : test::kFloating) {
    for (const auto& wanted : kShapes) {
      if (test::kChecksEveryAccess && wanted.shape.numel() > 100'000) continue;
      SCOPED_TRACE(fmt::format("{} {}", dtype, wanted.shape));
      const Outcome expected = run(wanted, dtype, false, 0), found = run(wanted, dtype, true, 0);
      ASSERT_EQ(found.tensors.size(), 11u);
      for (std::size_t i = 0; i < 11; ++i)
        EXPECT_TRUE(same_bits(found.tensors[i].to(kCpu), expected.tensors[i].to(kCpu))) << i;
    }
  }
}

TEST_F(NormPairOnDevice, ComputesTheGradientsThatAreNeeded) {
  for (const unsigned frozen :
       {0b000001u, 0b001000u, 0b001001u, 0b010010u, 0b100100u, 0b111110u, 0b111111u}) {
    SCOPED_TRACE(frozen);
    const test::ShapeCase wanted{{50, 16}};
    const Outcome expected = run(wanted, DType::f16, false, frozen),
                  found = run(wanted, DType::f16, true, frozen);
    ASSERT_EQ(found.tensors.size(), expected.tensors.size());
    for (std::size_t i = 0; i < found.tensors.size(); ++i)
      EXPECT_TRUE(same_bits(found.tensors[i].to(kCpu), expected.tensors[i].to(kCpu))) << i;
  }
}

// In every other case it is two norms.
TEST_F(NormPairOnDevice, IsOneOpInTrainingOfWholeBytesAlone) {
  const auto a = term({{20, 16}}, DType::f16, 1, Activation::relu),
             b = term({{20, 16}}, DType::f16, 11, Activation::none);
  EXPECT_TRUE(fuses_batch_norm_pair(a, b, true));
  EXPECT_FALSE(fuses_batch_norm_pair(a, b, false));
  EXPECT_FALSE(fuses_batch_norm_pair(a, a, true));
  EXPECT_FALSE(fuses_batch_norm_pair(b, b, true));
  const auto odd = term({{20, 12}}, DType::f16, 1, Activation::relu);
  EXPECT_FALSE(fuses_batch_norm_pair(odd, odd, true));
  {
    const NoFusion off;
    EXPECT_FALSE(fuses_batch_norm_pair(a, b, true));
  }
  const Tensor evaluated = batch_norm_pair(a, b, false);
  const Tensor expected =
      batch_norm(a.x, a.gamma, a.beta, a.running_mean, a.running_var, false, a.params,
                 batch_norm(b.x, b.gamma, b.beta, b.running_mean, b.running_var, false, b.params));
  EXPECT_TRUE(same_bits(evaluated.to(kCpu), expected.to(kCpu)));
}

}  // namespace athanor::batch_norm_pair_test
