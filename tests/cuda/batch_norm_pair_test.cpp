// ReLU of the sum of two norms, as one op, against one norm after the other: the same bits.
#include "autograd/detail/conv_norm_parts.h"
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

struct Term {
  Tensor x, gamma, beta, mean, var;
  BatchNormParams params;

  Term(const test::ShapeCase& wanted, DType dtype, std::uint64_t key, Activation activation)
      : params{.activation = activation} {
    const Shape channels{wanted.shape[wanted.shape.rank() - 1]};
    const DType stats = test::wide_dtype(dtype);
    x = test::on_device_like(filled(wanted, dtype, {key}, -1, 3));
    gamma = filled({channels}, stats, {key + 1}, 0.5, 1.5).to(test::device());
    beta = filled({channels}, stats, {key + 2}).to(test::device());
    mean = Tensor::zeros(channels, {stats, test::device()});
    var = ones(channels, {stats, test::device()});
  }
  Unnormalised unnormalised(bool training = true) const {
    return {x, {}, {gamma, beta, mean, var, training, params}};
  }
};

bool fuses(const Term& a, const Term& b, bool training = true) {
  return detail::fuses_batch_norm_pair(a.unnormalised(training), b.unnormalised(training));
}

struct Outcome {
  std::vector<Tensor> tensors;
};

/// `frozen`: bit i: input i of x, gamma, beta of both needs no gradient.
Outcome run(const test::ShapeCase& wanted, DType dtype, bool together, unsigned frozen) {
  const Term a(wanted, dtype, 1, Activation::relu), b(wanted, dtype, 11, Activation::none);
  const Tensor inputs[] = {a.x, a.gamma, a.beta, b.x, b.gamma, b.beta};
  for (unsigned i = 0; i < 6; ++i) {
    if ((frozen >> i & 1u) == 0) require_grad(inputs[i]);
  }
  Tensor y;
  if (together) {
    EXPECT_TRUE(fuses(a, b));
    y = detail::batch_norm_pair(a.unnormalised(), b.unnormalised());
  } else {
    y = detail::batch_norm(a.unnormalised(), detail::batch_norm(b.unnormalised(), {}));
  }
  Outcome outcome{{y.detach(), a.mean, a.var, b.mean, b.var}};
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
  const Term a({{20, 16}}, DType::f16, 1, Activation::relu), b({{20, 16}}, DType::f16, 11, Activation::none),
      odd({{20, 12}}, DType::f16, 1, Activation::relu),
      odd_shortcut({{20, 12}}, DType::f16, 11, Activation::none);
  EXPECT_TRUE(fuses(a, b));
  EXPECT_FALSE(fuses(a, b, false));
  EXPECT_FALSE(fuses(a, a));
  EXPECT_FALSE(fuses(b, b));
  EXPECT_FALSE(fuses(odd, odd_shortcut));
  const NoFusion off;
  EXPECT_FALSE(fuses(a, b));
}

}  // namespace athanor::batch_norm_pair_test
