// A batch norm and a max pooling beside it, as one op, against one after the other: the same bits.
#include <limits>

#include "autograd/conv_norm.h"
#include "autograd/detail/conv_norm_parts.h"
#include "autograd/grad_mode.h"
#include "autograd/pool.h"
#include "tests/cuda/ops.h"
#include "tests/support/activations.h"

namespace athanor::batch_norm_pool_test {

using NormPoolOnDevice = test::DeviceTest;
using test::filled;
using test::In;
using test::Layout;
using test::same_bits;

enum class Order : std::uint8_t { norm_first, pool_first };

struct Case {
  test::ShapeCase x;
  Pool2dParams pool;
};

// Windows that overlap, by two and by one; side by side, with and without a rest; beyond the edges; not
// square. A vector of channels, several tiles, a few single ones; off alignment; many rows, so that several
// blocks sum.
const Pool2dParams kStem{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, kQuarter{},
    kCeil{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .ceil_mode = true},
    kOblong{.window = {2, 3}, .stride = {1, 2}, .padding = {1, 0}}, kGaps{.window = {2, 1}, .stride = {3, 2}};
const Case kOverlapping[] = {{{{2, 7, 9, 8}}, kStem},    {{{2, 8, 8, 16}}, kStem},
                             {{{1, 6, 8, 24}}, kCeil},   {{{2, 5, 7, 72}}, kOblong},
                             {{{3, 7, 6, 3}}, kStem},    {{{2, 7, 8, 16}}, kGaps},
                             {{{2, 7, 9, 8}}, kQuarter}, {{{1, 5, 6, 16}, Layout::misaligned}, kStem},
                             {{{9, 41, 40, 8}}, kStem}};
const Pool2dParams kThirds{.window = {3, 2}, .stride = {3, 2}};
const Case kSideBySide[] = {{{{2, 6, 8, 8}}, kQuarter}, {{{2, 7, 9, 16}}, kQuarter},
                            {{{1, 7, 8, 72}}, kThirds}, {{{3, 5, 4, 3}}, kQuarter},
                            {{{1, 8, 7, 24}}, kThirds}, {{{1, 5, 6, 16}, Layout::misaligned}, kQuarter},
                            {{{2, 3, 3, 8}}, kThirds},  {{{9, 81, 80, 8}}, kQuarter}};

struct Inputs {
  Tensor x, gamma, beta, mean, var, sums;
  BatchNormParams params;

  Inputs(const test::ShapeCase& wanted, DType dtype, Activation activation)
      : params{.activation = activation} {
    const Shape channels{wanted.shape[wanted.shape.rank() - 1]};
    const DType stats = test::wide_dtype(dtype);
    x = test::on_device_like(filled(wanted, dtype, {1}, -1, 3));
    gamma = filled({channels}, stats, {2}, -1.5, 1.5).to(test::device());
    beta = filled({channels}, stats, {3}).to(test::device());
    mean = Tensor::zeros(channels, {stats, test::device()});
    var = ones(channels, {stats, test::device()});
  }
  NormArguments norm(bool training = true) const { return {gamma, beta, mean, var, training, params}; }
  Unnormalised unnormalised(bool training = true) const { return {x, sums, norm(training)}; }
};

bool fuses(Order order, const Inputs& in, const Pool2dParams& pool, bool training = true) {
  return order == Order::norm_first ? detail::fuses_batch_norm_max_pool(in.unnormalised(training), pool)
                                    : detail::fuses_max_pool_batch_norm(in.x, pool, in.norm(training));
}

Tensor result(Order order, const Inputs& in, const Pool2dParams& pool, bool together) {
  if (together) {
    EXPECT_TRUE(fuses(order, in, pool));
    return order == Order::norm_first ? detail::batch_norm_max_pool(in.unnormalised(), pool)
                                      : detail::max_pool_batch_norm(in.x, pool, in.norm());
  }
  return order == Order::norm_first ? max_pool2d(detail::batch_norm(in.unnormalised(), {}), pool)
                                    : detail::batch_norm({max_pool2d(in.x, pool), {}, in.norm()}, {});
}

/// y, both running statistics and the gradients of x, gamma, beta. `frozen`: bit i: input i needs none.
std::vector<Tensor> run(Order order, const Inputs& in, const Pool2dParams& pool, bool together,
                        unsigned frozen = 0) {
  const Tensor inputs[] = {in.x, in.gamma, in.beta};
  for (unsigned i = 0; i < 3; ++i) {
    if ((frozen >> i & 1u) == 0) require_grad(inputs[i]);
  }
  const Tensor y = result(order, in, pool, together);
  std::vector<Tensor> found{y.detach(), in.mean, in.var};
  if (!y.requires_grad()) return found;
  backward(y, filled({y.shape()}, y.dtype(), {21}).to(test::device()));
  for (unsigned i = 0; i < 3; ++i) {
    if ((frozen >> i & 1u) == 0) found.push_back(grad_of(inputs[i]));
  }
  return found;
}

/// make(): Inputs, the same each time.
template <class Make>
void expect_same_bits(Order order, const Make& make, const Pool2dParams& pool, unsigned frozen = 0) {
  const std::vector<Tensor> expected = run(order, make(), pool, false, frozen),
                            found = run(order, make(), pool, true, frozen);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(same_bits(found[i].to(kCpu), expected[i].to(kCpu))) << "result " << i;
}

TEST_F(NormPoolOnDevice, NormThenPoolHasTheBitsOfOneAfterTheOther) {
  for (const DType dtype : test::kFloating) {
    for (const Case& c : kOverlapping) {
      if (test::kChecksEveryAccess && c.x.shape.numel() > 100'000) continue;
      SCOPED_TRACE(fmt::format("{} {} window {}", dtype, c.x.shape, c.pool.window[1]));
      expect_same_bits(
          Order::norm_first, [&] { return Inputs(c.x, dtype, Activation::relu); }, c.pool);
    }
  }
}

TEST_F(NormPoolOnDevice, PoolThenNormHasTheBitsOfOneAfterTheOther) {
  for (const DType dtype : test::kFloating) {
    for (const Case& c : kSideBySide) {
      if (test::kChecksEveryAccess && c.x.shape.numel() > 100'000) continue;
      for (const Activation activation : test::kActivations) {
        SCOPED_TRACE(fmt::format("{} {} window {}, activation {}", dtype, c.x.shape, c.pool.window[0],
                                 static_cast<int>(activation)));
        expect_same_bits(
            Order::pool_first, [&] { return Inputs(c.x, dtype, activation); }, c.pool);
      }
    }
  }
}

// The sums of a convolution are those of as many values as x has, not y.
TEST_F(NormPoolOnDevice, NormReadsTheSumsThatItIsGiven) {
  const auto make = [] {
    Inputs in({{2, 7, 9, 8}}, DType::f16, Activation::relu);
    const std::vector<double> values = in.x.to_vector();
    std::vector<float> sums(16);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i % 8] += static_cast<float>(values[i]);
      sums[8 + i % 8] += static_cast<float>(values[i] * values[i]);
    }
    in.sums = Tensor::from(sums, {2, 8}, test::device());
    return in;
  };
  expect_same_bits(Order::norm_first, make, kStem);
}

TEST_F(NormPoolOnDevice, TiesNaNAndInfinityAreAsInTwoOps) {
  for (const Order order : {Order::norm_first, Order::pool_first}) {
    for (const DType dtype : test::kFloating) {
      SCOPED_TRACE(fmt::format("{}, {}", static_cast<int>(order), dtype));
      const auto make = [&] {
        Inputs in({{2, 6, 8, 8}}, dtype, Activation::relu);
        std::vector<double> values = in.x.to_vector();
        for (double& value : values) value = std::round(2 * value) / 2;
        values[8 * 9 + 1] = std::numeric_limits<double>::quiet_NaN();
        values[8 * 20 + 2] = std::numeric_limits<double>::infinity();
        values[8 * 30 + 3] = -std::numeric_limits<double>::infinity();
        in.x = cast(Tensor::from(values, in.x.shape()), dtype).to(test::device());
        return in;
      };
      expect_same_bits(order, make, order == Order::norm_first ? kStem : kQuarter);
    }
  }
}

TEST_F(NormPoolOnDevice, ComputesTheGradientsThatAreNeeded) {
  for (const Order order : {Order::norm_first, Order::pool_first}) {
    for (const unsigned frozen : {0b001u, 0b010u, 0b100u, 0b110u, 0b011u, 0b111u}) {
      SCOPED_TRACE(fmt::format("{}, {}", static_cast<int>(order), frozen));
      expect_same_bits(
          order,
          [] {
            return Inputs({{2, 6, 8, 16}}, DType::f16, Activation::relu);
          },
          order == Order::norm_first ? kStem : kQuarter, frozen);
    }
  }
}

TEST_F(NormPoolOnDevice, CentralDifferencesAgree) {
  const Tensor x = filled({{2, 5, 6, 3}}, DType::f64, {1}).to(test::device()),
               gamma = filled({{3}}, DType::f64, {2}, 0.3, 0.6).to(test::device()),
               beta = filled({{3}}, DType::f64, {3}, 3, 4).to(test::device()),
               none;  // no kink of ReLU is near
  for (const Tensor& t : {x, gamma, beta}) require_grad(t);
  const BatchNormParams relu{.activation = Activation::relu}, gelu{.activation = Activation::gelu};
  gradcheck(
      [&](In in) {
        return detail::batch_norm_max_pool({in[0], {}, {in[1], in[2], none, none, true, relu}}, kStem);
      },
      std::vector{x, gamma, beta});
  gradcheck(
      [&](In in) {
        return detail::max_pool_batch_norm(in[0], kQuarter, {in[1], in[2], none, none, true, gelu});
      },
      std::vector{x, gamma, beta});
}

// In every other case it is two ops.
TEST_F(NormPoolOnDevice, IsOneOpWhereThereIsCode) {
  const Inputs relu({{2, 6, 8, 16}}, DType::f16, Activation::relu),
      gelu({{2, 6, 8, 16}}, DType::f16, Activation::gelu);
  const Pool2dParams many{.window = {3, 3}, .stride = {1, 1}}, dilated{.dilation = {2, 1}};
  EXPECT_TRUE(fuses(Order::norm_first, relu, kStem));
  EXPECT_TRUE(fuses(Order::norm_first, relu, kQuarter));
  EXPECT_TRUE(fuses(Order::pool_first, gelu, kQuarter));
  EXPECT_FALSE(fuses(Order::norm_first, gelu, kStem));
  EXPECT_FALSE(fuses(Order::pool_first, gelu, kStem));
  for (const Pool2dParams& pool : {many, dilated}) {
    EXPECT_FALSE(fuses(Order::norm_first, relu, pool));
    EXPECT_FALSE(fuses(Order::pool_first, relu, pool));
  }
  for (const Order order : {Order::norm_first, Order::pool_first}) {
    EXPECT_FALSE(fuses(order, relu, kQuarter, false));
    const NoFusion off;
    EXPECT_FALSE(fuses(order, relu, kQuarter));
  }
}

// Whole calls, with their own decision, also where there is no code for both.
TEST_F(NormPoolOnDevice, CallsHaveTheBitsOfSingleOps) {
  const Tensor x = filled({{3, 9, 8, 8}}, DType::f16, {1}).to(test::device()),
               w = filled({{16, 3, 3, 8}}, DType::f16, {2}).to(test::device()), none;
  const Conv2dParams conv{.padding = {1, 1}};
  const NoGrad without;
  for (const Activation activation : {Activation::relu, Activation::gelu}) {
    const Inputs wide({{1, 1, 1, 16}}, DType::f16, activation),
        narrow({{1, 1, 1, 8}}, DType::f16, activation);
    for (const bool training : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(activation), training));
      const ConvArguments first{w, none, conv};
      const NormArguments of_wide = wide.norm(training), of_narrow = narrow.norm(training);
      EXPECT_TRUE(same_bits(conv_norm_max_pool(x, first, of_wide, kStem).to(kCpu),
                            max_pool2d(conv_norm(x, first, of_wide), kStem).to(kCpu)));
      EXPECT_TRUE(same_bits(max_pool_norm(x, kQuarter, of_narrow).to(kCpu),
                            detail::batch_norm({max_pool2d(x, kQuarter), {}, of_narrow}, {}).to(kCpu)));
    }
  }
}

}  // namespace athanor::batch_norm_pool_test
