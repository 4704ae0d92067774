// A norm with ReLU whose result is in no memory: the convolution behind it computes it, with ours by the same
// passes as separate ops.
#include <cmath>

#include "autograd/conv.h"
#include "autograd/detail/conv_norm_parts.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "kernels/conv.h"
#include "kernels/cuda/vendor.h"
#include "nn/models/resnet.h"
#include "tests/cuda/ops.h"

namespace athanor::pending_norm_test {

using PendingNormOnDevice = test::DeviceTest;
using test::filled;
using test::same_bits;

struct Case {
  Shape x, w;
  Conv2dParams params = {};
};

// A filter of each size, with a stride, and rows that end inside a tile.
const Case kCases[] = {{{9, 16, 16, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},
                       {{5, 15, 15, 16}, {24, 3, 3, 16}, {.stride = {2, 2}, .padding = {1, 1}}},
                       {{13, 9, 9, 32}, {72, 1, 1, 32}}};

/// Two convolutions, each with a norm; the first has a 1 x 1 filter. Ours, unless asked for another.
struct Layers {
  Tensor x, w1, w2;
  Tensor gamma[2], beta[2], mean[2], var[2];
  Conv2dParams first{.impl = ConvImpl::reference}, second;
  BatchNormParams relu{.activation = Activation::relu};

  explicit Layers(const Case& wanted, DType dtype = DType::f16, ConvImpl impl = ConvImpl::reference)
      : second(wanted.params) {
    second.impl = impl;
    const std::int64_t c = wanted.x[3];
    x = test::on_device_like(filled({wanted.x}, dtype, {1}, -1, 2));
    w1 = test::on_device_like(filled({{c, 1, 1, c}}, dtype, {2}, -0.5, 0.5));
    w2 = test::on_device_like(filled({wanted.w}, dtype, {3}, -0.2, 0.3));
    const std::int64_t channels[] = {c, wanted.w[0]};
    for (std::size_t i = 0; i < 2; ++i) {
      const DType stats = test::wide_dtype(dtype);
      gamma[i] = filled({{channels[i]}}, stats, {4 + i}, 0.5, 1.5).to(test::device());
      beta[i] = filled({{channels[i]}}, stats, {6 + i}).to(test::device());
      mean[i] = Tensor::zeros({channels[i]}, {stats, test::device()});
      var[i] = ones({channels[i]}, {stats, test::device()});
    }
    for (const Tensor& leaf : {x, w1, w2, gamma[0], beta[0], gamma[1], beta[1]}) require_grad(leaf);
  }
  ConvArguments conv(std::size_t i) const { return {i == 0 ? w1 : w2, none_, i == 0 ? first : second}; }
  NormArguments norm(std::size_t i) const { return {gamma[i], beta[i], mean[i], var[i], true, relu}; }

  Tensor apart() const { return conv_norm(conv_norm(x, conv(0), norm(0)), conv(1), norm(1)); }
  Tensor together() const { return conv_norm(conv_norm_deferred(x, conv(0), norm(0)), conv(1), norm(1)); }
  /// Whether the first norm may be part of the second convolution.
  bool fits() const { return detail::may_stay_pending(conv_norm_deferred(x, conv(0), norm(0)), conv(1)); }

 private:
  Tensor none_;
};

/// Whether the result of a batch norm has been its input's memory.
struct Watch final : OpObserver {
  bool pending = false;
  void recorded(const OpCall& op, const Tensor& y, std::span<const Input> inputs) override {
    if (std::string_view(op.name) == "batch_norm") pending |= y.raw_data() == inputs[0].tensor->raw_data();
  }
  ObserveScope scope{*this};
};

// Sums of the norm's gradient are rounded once, to f32, where separate passes have them in f64.
TEST_F(PendingNormOnDevice, HasTheBitsOfSeparateOps) {
  for (const Case& wanted : kCases) {
    SCOPED_TRACE(fmt::format("x {} w {}", wanted.x, wanted.w));
    const auto train = [&](bool together) {
      const Layers layers(wanted);
      const Watch watch;
      const Tensor y = together ? layers.together() : layers.apart();
      EXPECT_EQ(watch.pending, together);
      backward(y, test::on_device_like(filled({y.shape()}, DType::f16, {9})));
      std::vector<Tensor> results{y.detach()};
      for (std::size_t i = 0; i < 2; ++i)
        results.insert(results.end(),
                       {layers.mean[i], layers.var[i], grad_of(layers.gamma[i]), grad_of(layers.beta[i])});
      results.insert(results.end(), {grad_of(layers.w2), grad_of(layers.w1), grad_of(layers.x)});
      return results;
    };
    const std::vector<Tensor> expected = train(false), found = train(true);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Tensor a = found[i].to(kCpu), b = expected[i].to(kCpu);
      EXPECT_TRUE(i + 2 < found.size() ? same_bits(a, b) : test::close(a, b, 0x1p-10)) << i;
    }
  }
}

// With another gradient than that of its one reader, a norm would be wrong: a second pass must start anew.
TEST_F(PendingNormOnDevice, AGraphThatIsKeptRunsTwice) {
  const Layers layers(kCases[0]);
  const Tensor y = layers.together(), dy = test::on_device_like(filled({y.shape()}, DType::f16, {9}));
  const Tensor leaves[] = {layers.w1, layers.gamma[0]};
  const std::vector<Tensor> once = grad(y, leaves, dy, {.retain_graph = true}), again = grad(y, leaves, dy);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(once[i].to(kCpu), again[i].to(kCpu))) << i;
}

// The convolution has left the norm's sums, and the norm does not come to take them.
TEST_F(PendingNormOnDevice, SumsOfAPassThatFailedAreNotTakenInTheNext) {
  const Layers found(kCases[0]), expected(kCases[0]);
  const auto leaves = [](const Layers& of) {
    return std::array{of.x, of.w1, of.w2, of.gamma[0], of.beta[0], of.gamma[1], of.beta[1]};
  };
  const Tensor y = found.together(), dy = test::on_device_like(filled({y.shape()}, DType::f16, {9}));
  bool failed = false;
  on_grad_ready(found.w2, [&] {
    if (!std::exchange(failed, true)) throw std::runtime_error("peer lost");
  });
  EXPECT_THROW(backward(y, affine(dy, 2, 0), {.retain_graph = true}), std::runtime_error);
  for (const Tensor& leaf : leaves(found)) zero_grad(leaf);
  const AnomalyMode watch;  // under it, a convolution leaves no sums
  backward(y, dy);
  backward(expected.together(), dy);
  const auto of_found = leaves(found), of_expected = leaves(expected);
  for (std::size_t i = 0; i < of_found.size(); ++i)
    EXPECT_TRUE(test::close(grad_of(of_found[i]).to(kCpu), grad_of(of_expected[i]).to(kCpu), 0x1p-9)) << i;
}

// The norm does without its residual backward, so it may be written to before.
TEST_F(PendingNormOnDevice, AResidualMayChangeBeforeTheBackwardPass) {
  const auto train = [](bool changes) {
    const Layers layers(kCases[0]);
    const Tensor r = test::on_device_like(filled({kCases[0].x}, DType::f16, {8})), none;
    const Tensor n = batch_norm(layers.x, layers.gamma[0], layers.beta[0], {}, {}, true, layers.relu, r);
    const Tensor y = conv2d(n, layers.w2, none, layers.second);
    if (changes) r.bump_version();
    backward(y, test::on_device_like(filled({y.shape()}, DType::f16, {9})));
    return std::array{grad_of(layers.x).to(kCpu), grad_of(layers.gamma[0]).to(kCpu)};
  };
  const auto found = train(true), expected = train(false);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(test::close(found[i], expected[i], 0x1p-9)) << i;
}

// What a convolution does not take is an error before the running statistics move.
TEST_F(PendingNormOnDevice, AFilterThatDoesNotFitMovesNoStatistics) {
  const Layers layers(kCases[0]);
  const Tensor none, mean = layers.mean[0].to(kCpu);
  const Conv2dParams params{.impl = ConvImpl::reference};
  const auto run = [&](const Tensor& w) {
    return conv_norm(conv_norm_deferred(layers.x, layers.conv(0), layers.norm(0)), {w, none, params},
                     layers.norm(1));
  };
  const Tensor too_large = Tensor::zeros({16, 99, 99, 16}, layers.x.options());
  EXPECT_THROW((void)run(too_large), ArgumentError);
  EXPECT_TRUE(same_bits(layers.mean[0].to(kCpu), mean));
  EXPECT_THROW((void)run(none), Error);
  EXPECT_THROW((void)run(Tensor::zeros({16, 16}, layers.x.options())), ArgumentError);
  EXPECT_THROW((void)run(Tensor::zeros({16, 1, 1, 16}, {DType::f16, kCpu})), ArgumentError);
}

TEST_F(PendingNormOnDevice, ComputesTheGradientsThatAreNeeded) {
  const Layers all(kCases[0]);
  const Tensor dy = test::on_device_like(filled({{9, 16, 16, 16}}, DType::f16, {9}));
  backward(all.together(), dy);
  for (unsigned frozen = 1; frozen < 16; ++frozen) {
    SCOPED_TRACE(frozen);
    const Layers some(kCases[0]);
    const Tensor inputs[] = {some.w1, some.gamma[0], some.beta[0], some.w2},
                 expected[] = {all.w1, all.gamma[0], all.beta[0], all.w2};
    forget_grad(some.x);
    for (unsigned i = 0; i < 4; ++i) {
      if (frozen >> i & 1u) forget_grad(inputs[i]);
    }
    backward(some.together(), dy);
    for (unsigned i = 0; i < 4; ++i) {
      if (frozen >> i & 1u) continue;
      EXPECT_TRUE(same_bits(grad_of(inputs[i]).to(kCpu), grad_of(expected[i]).to(kCpu))) << i;
    }
  }
}

TEST_F(PendingNormOnDevice, IsForF16InTrainingAlone) {
  const Case& good = kCases[0];
  EXPECT_TRUE(Layers(good).fits());
  EXPECT_FALSE(Layers(good, DType::bf16).fits());
  EXPECT_FALSE(Layers(good, DType::f32).fits());
  EXPECT_FALSE(Layers({{9, 16, 16, 16}, {12, 3, 3, 16}, {.padding = {1, 1}}}).fits());
  EXPECT_FALSE(Layers({{9, 16, 16, 16}, {16, 3, 3, 8}, {.padding = {1, 1}, .groups = 2}}).fits());
  Layers linear(good);
  linear.relu.activation = Activation::none;
  EXPECT_FALSE(linear.fits());
  {
    const OpTrace trace;
    EXPECT_FALSE(Layers(good).fits());
  }
  {
    const AnomalyMode watched;
    EXPECT_FALSE(Layers(good).fits());
  }
  if (!cuda::has_vendor()) {
    EXPECT_FALSE(Layers(good, DType::f16, ConvImpl::automatic).fits());
  }
  const NoFusion off;
  EXPECT_FALSE(Layers(good).fits());
}

// In a checkpoint the second run does not move the running statistics again.
TEST_F(PendingNormOnDevice, RunningStatisticsMoveOnce) {
  const Layers layers(kCases[0]), again(kCases[0]);
  (void)layers.together();
  (void)again.together();
  const Recomputing recomputing;
  (void)again.together();
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(same_bits(layers.mean[i].to(kCpu), again.mean[i].to(kCpu)));
    EXPECT_TRUE(same_bits(layers.var[i].to(kCpu), again.var[i].to(kCpu)));
  }
}

// Where one block ends and the next begins ----------------------------------------------------------------

/// relu(norm(conv(x)) + shortcut), then a block with that as its shortcut.
struct Blocks {
  Tensor x, w[4], gamma[4], beta[4], mean[4], var[4];
  Conv2dParams pointwise{.impl = ConvImpl::reference};
  BatchNormParams relu{.activation = Activation::relu}, plain;
  bool normalised;  // the first shortcut

  explicit Blocks(bool with_norm, DType dtype = DType::f16) : normalised(with_norm) {
    constexpr std::int64_t c = 16;
    x = test::on_device_like(filled({{13, 9, 9, c}}, dtype, {1}, -1, 2));
    for (std::uint64_t i = 0; i < 4; ++i) {
      w[i] = test::on_device_like(filled({{c, 1, 1, c}}, dtype, {2 + i}, -0.5, 0.5));
      gamma[i] = filled({{c}}, DType::f32, {10 + i}, 0.5, 1.5).to(test::device());
      beta[i] = filled({{c}}, DType::f32, {20 + i}).to(test::device());
      mean[i] = Tensor::zeros({c}, {DType::f32, test::device()});
      var[i] = ones({c}, {DType::f32, test::device()});
      for (const Tensor& leaf : {w[i], gamma[i], beta[i]}) require_grad(leaf);
    }
    require_grad(x);
  }
  ConvArguments conv(std::size_t i) const { return {w[i], none_, pointwise}; }
  NormArguments norm(std::size_t i, const BatchNormParams& params) const {
    return {gamma[i], beta[i], mean[i], var[i], true, params};
  }
  /// The result of both blocks. `apart`: the first one's is a tensor before the second one begins.
  Tensor run(bool apart) const {
    const DeferredNorm shortcut =
        normalised ? conv_norm_deferred(x, conv(0), norm(0, plain)) : DeferredNorm(x);
    DeferredNorm y = conv_norm_deferred(x, conv(1), norm(1, relu), shortcut);
    if (apart) y = y.value();
    const DeferredNorm inner = conv_norm_deferred(y, conv(2), norm(2, relu));
    return conv_norm(apart ? DeferredNorm(inner.value()) : inner, conv(3), norm(3, relu), y);
  }

 private:
  Tensor none_;
};

/// How often the backward pass of a convolution has left nothing for its input to add.
struct Concluded final : OpObserver {
  int times = 0;
  void backward_ended(const char* op, const char*, const Tensor&, std::span<const Tensor> dx) override {
    times += std::string_view(op) == "conv2d" && !dx[0].defined();
  }
  ObserveScope scope{*this};
};

TEST_F(PendingNormOnDevice, AtTheEndOfABlockHasTheBitsOfSeparateOps) {
  for (const bool normalised : {false, true}) {
    const auto train = [&](bool apart) {
      const Blocks blocks(normalised);
      const Concluded watch;
      const Tensor y = blocks.run(apart);
      backward(y, test::on_device_like(filled({y.shape()}, DType::f16, {9})));
      EXPECT_EQ(watch.times,
                2);  // to the norm inside of the second block, and to that at the end of the first
      std::vector<Tensor> results{y.detach()};
      for (std::size_t i = 0; i < 4; ++i) {
        if (i == 0 && !normalised) continue;
        results.insert(results.end(), {blocks.mean[i], blocks.var[i], grad_of(blocks.w[i]),
                                       grad_of(blocks.gamma[i]), grad_of(blocks.beta[i])});
      }
      results.push_back(grad_of(blocks.x));
      return results;
    };
    const std::vector<Tensor> expected = train(true), found = train(false);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(same_bits(found[i].to(kCpu), expected[i].to(kCpu))) << normalised << ' ' << i;
  }
}

// Against ops that offer nothing: the gradients of a plain graph.
TEST_F(PendingNormOnDevice, AtTheEndOfABlockHasTheGradientsOfAPlainGraph) {
  for (const bool normalised : {false, true}) {
    const Blocks found(normalised), expected(normalised);
    const Tensor dy = test::on_device_like(filled({{13, 9, 9, 16}}, DType::f16, {9}));
    backward(found.run(false), dy);
    {
      const OpTrace single;
      backward(expected.run(true), dy);
    }
    for (std::size_t i = normalised ? 0 : 1; i < 4; ++i) {
      for (const auto& [a, b] :
           {std::pair{found.w[i], expected.w[i]}, std::pair{found.gamma[i], expected.gamma[i]},
            std::pair{found.beta[i], expected.beta[i]}})
        EXPECT_TRUE(test::close(grad_of(a).to(kCpu), grad_of(b).to(kCpu), 0x1p-8)) << normalised << ' ' << i;
    }
    EXPECT_TRUE(test::close(grad_of(found.x).to(kCpu), grad_of(expected.x).to(kCpu), 0x1p-7)) << normalised;
  }
}

TEST_F(PendingNormOnDevice, IsAnErrorForASecondReader) {
  const Layers layers(kCases[0]);
  const DeferredNorm once = conv_norm_deferred(layers.x, layers.conv(0), layers.norm(0));
  (void)conv_norm(once, layers.conv(1), layers.norm(1));
  EXPECT_THROW((void)once.value(), Error);
}

const nn::Conv2dOptions kPointwise{.bias = false, .impl = ConvImpl::reference};

/// One convolution, and what was added to it.
struct OneLayer final : nn::ResidualBlock {
  nn::ConvNorm conv1;

  OneLayer(std::int64_t in, std::int64_t out)
      : ResidualBlock(nn::ResNetConfig(), {in, out, 1}, out),
        conv1(in, out, 1, kPointwise, {.activation = Activation::relu}) {
    register_layers({&conv1});
  }
  DeferredNorm run(const DeferredNorm& x) override {
    const DeferredNorm residual = shortcut(x);
    return conv1.deferred(x, residual);
  }
};

// The branch's convolution would be the one reader of a norm without a residual, and the shortcut another.
TEST_F(PendingNormOnDevice, ABlockTakesANormThatIsLeftToIt) {
  nn::ConvNorm before(16, 16, 1, kPointwise, {.activation = Activation::relu});
  OneLayer same(16, 16), wider(16, 32);
  const Tensor x = test::on_device_like(filled({{9, 16, 16, 16}}, DType::f16, {1}, -1, 2));
  for (nn::Module* module : std::initializer_list<nn::Module*>{&before, &same, &wider}) {
    module->initialize(1);
    module->to(DType::f16);
    module->to(test::device());
  }
  for (OneLayer* block : {&same, &wider}) {
    EXPECT_TRUE(detail::may_stay_pending(before.deferred(x), block->conv1.conv.arguments()));
    const Tensor found = block->deferred(before.deferred(x)).value(), expected = (*block)(before(x));
    EXPECT_TRUE(same_bits(found.to(kCpu), expected.to(kCpu)));
  }
}

// What the rounding of its operands costs -----------------------------------------------------------------

/// relu(x scale + shift) with f16 coefficients of f16 x, rounded once: what a convolution computes of it.
double scaled(double x, double scale, double shift) {
  return std::max(static_cast<double>(static_cast<float>(Half(static_cast<float>(x * scale + shift)))), 0.0);
}

// What is said of PendingNorm::coefficients, for means of up to 30 deviations.
TEST_F(PendingNormOnDevice, CoefficientsAreWithinTheErrorOfX) {
  constexpr std::int64_t kRows = 500, kChannels = 64;
  const Tensor noise = filled({{kRows, kChannels}}, DType::f32, {1}, -1, 1),
               x = Tensor::empty({kRows, kChannels}, {DType::f16, kCpu});
  std::vector<double> sum(kChannels), square(kChannels);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t c = i % kChannels;
    x.data<Half>()[i] = Half(noise.data<float>()[i] + static_cast<float>(c - 32) / 2);
    const double value = static_cast<float>(x.data<Half>()[i]);
    sum[static_cast<std::size_t>(c)] += value, square[static_cast<std::size_t>(c)] += value * value;
  }
  const Tensor sums = Tensor::empty({2, kChannels});
  for (std::size_t c = 0; c < kChannels; ++c) {
    sums.data<float>()[c] = static_cast<float>(sum[c]);
    sums.data<float>()[kChannels + c] = static_cast<float>(square[c]);
  }
  const Tensor gamma = filled({{kChannels}}, DType::f32, {2}, 0.5, 1.5),
               beta = filled({{kChannels}}, DType::f32, {3});
  const auto there = [](const Tensor& t) { return t.to(test::device()); };
  const Tensor stats = Tensor::empty({2, kChannels}, {DType::f32, test::device()}),
               coefficients = Tensor::empty({2, kChannels}, {DType::f16, test::device()});
  kernels::batch_norm_coefficients(
      test::context(), {there(x), there(gamma), there(beta), 1e-5, {}, stats, there(sums)}, coefficients);
  const std::vector<double> found = coefficients.to_vector(), of = stats.to_vector();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto c = static_cast<std::size_t>(i % kChannels);
    const double value = static_cast<float>(x.data<Half>()[i]), scale = found[c],
                 shift = found[kChannels + c];
    const double pre = (value - of[c]) * of[kChannels + c] * gamma.data<float>()[c] + beta.data<float>()[c];
    const double bound = 0x1p-11 * (std::abs(pre - beta.data<float>()[c]) + std::abs(shift)) * 1.001;
    EXPECT_NEAR(value * scale + shift, pre, bound) << i;
    EXPECT_NEAR(scaled(value, scale, shift), std::max(pre, 0.0), bound + 0x1p-11 * std::abs(pre) + 0x1p-24)
        << i;
  }
}

// All values of a channel alike: scale and shift are finite, however small eps and however large the mean.
TEST_F(PendingNormOnDevice, CoefficientsAreFinite) {
  const Tensor x = Tensor::empty({16, 8}, {DType::f16, test::device()});
  std::vector<float> sums;
  for (const float value : {0.f, 3.f, -3.f, 300.f, -300.f, 6e4f, -6e4f, 1e-4f}) sums.push_back(16 * value);
  for (std::size_t c = 0; c < 8; ++c) sums.push_back(sums[c] * sums[c] / 16);
  const Tensor stats = Tensor::empty({2, 8}, {DType::f32, test::device()}),
               coefficients = Tensor::empty({2, 8}, {DType::f16, test::device()});
  const Tensor one = ones({8}, {DType::f32, test::device()});
  kernels::batch_norm_coefficients(
      test::context(), {x, one, one, 1e-12, {}, stats, Tensor::from(sums, {2, 8}, test::device())},
      coefficients);
  for (const double value : coefficients.to_vector()) EXPECT_TRUE(std::isfinite(value)) << value;
}

}  // namespace athanor::pending_norm_test
