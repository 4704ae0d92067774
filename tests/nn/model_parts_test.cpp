#include <set>

#include "nn/conv_norm.h"
#include "nn/models/convnext.h"
#include "nn/models/efficientnet.h"
#include "nn/models/mobilenet.h"
#include "nn/models/unet.h"
#include "nn/squeeze_excitation.h"
#include "nn/stochastic_depth.h"
#include "tests/support/ops.h"

namespace athanor::nn::model_parts_test {

constexpr std::uint64_t kSeed = 7;

Tensor normal(const Shape& shape, DType dtype = DType::f32, std::uint64_t stream = 1) {
  const Tensor x = Tensor::empty(shape, {dtype, kCpu});
  init::normal(x, {3, stream}, 0, 1);
  return x;
}

// Stochastic depth -----------------------------------------------------------------------------------------

TEST(StochasticDepth, KeepsAWholeSampleScaledOrNothingOfIt) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const Shape& shape : {Shape{257}, Shape{64, 5}, Shape{33, 3, 2, 7}}) {
      StochasticDepth drop(0.5);
      const Tensor x = normal(shape, dtype);
      const std::vector<double> in = x.to_vector(), out = drop(x).to_vector();
      const std::size_t sample = in.size() / static_cast<std::size_t>(shape[0]);
      std::set<double> scales;
      for (std::size_t n = 0; n < static_cast<std::size_t>(shape[0]); ++n) {
        const double scale = out[n * sample] == 0 ? 0 : 2;
        scales.insert(scale);
        for (std::size_t i = 0; i < sample; ++i) ASSERT_EQ(out[n * sample + i], scale * in[n * sample + i]);
      }
      EXPECT_EQ(scales, (std::set<double>{0, 2})) << shape.str();
    }
  }
}

TEST(StochasticDepth, DropsTheShareAskedFor) {
  constexpr std::int64_t kSamples = 100'000;
  for (const double p : {0.1, 0.8}) {
    StochasticDepth drop(p);
    double dropped = 0;
    for (const double value : drop(normal({kSamples, 1})).to_vector()) dropped += value == 0 ? 1 : 0;
    const double deviation = std::sqrt(p * (1 - p) / kSamples);
    EXPECT_NEAR(dropped / kSamples, p, 5 * deviation);
  }
  EXPECT_EQ(StochasticDepth(1)(normal({3, 2})).to_vector(), std::vector<double>(6, 0));
}

TEST(StochasticDepth, GradientIsOfWhatWasKept) {
  StochasticDepth drop(0.5);
  const Tensor x = normal({64, 3});
  require_grad(x);
  const Tensor y = drop(x), dy = normal({64, 3}, DType::f32, 2);
  backward(y, dy);
  const std::vector<double> in = x.to_vector(), out = y.to_vector(), seed = dy.to_vector(),
                            dx = grad_of(x).to_vector();
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_EQ(dx[i], out[i] == 0 ? 0 : 2 * seed[i]);
}

TEST(StochasticDepth, IsTheIdentityInEvaluationAndWithoutProbability) {
  StochasticDepth drop(0.4), never(0);
  drop.set_p(0.9);
  EXPECT_EQ(drop.p(), 0.9);
  EXPECT_THROW(drop.set_p(1.5), ArgumentError);
  const Tensor x = normal({8, 4});
  drop.eval();
  EXPECT_TRUE(drop(x).same_as(x));
  EXPECT_TRUE(never(x).same_as(x));
  drop.train();
  EXPECT_NE(drop(x).to_vector(), x.to_vector());
  EXPECT_EQ(drop(Tensor::zeros({0, 3})).shape(), (Shape{0, 3}));
}

TEST(StochasticDepth, DrawsIndependentlyInEveryCall) {
  StochasticDepth drop(0.5);
  const Tensor x = normal({64, 2});
  EXPECT_NE(drop(x).to_vector(), drop(x).to_vector());
}

TEST(StochasticDepth, RejectsInvalidProbabilitiesAndInputs) {
  for (const double p : {-0.1, 1.5, std::nan("")}) EXPECT_THROW(StochasticDepth{p}, ArgumentError) << p;
  StochasticDepth drop(0.5);
  EXPECT_THROW(drop(Tensor::zeros({})), ArgumentError);
  EXPECT_THROW(drop(Tensor::zeros({2}, {DType::i64, kCpu})), ArgumentError);
}

// Squeeze and excitation -----------------------------------------------------------------------------------

TEST(SqueezeExcitation, MatchesItsFormulaInDouble) {
  for (const bool hard : {false, true}) {
    SqueezeExcitation weigh(4, 2, {.hard_gate = hard});
    weigh.to(DType::f64);
    weigh.initialize(kSeed);
    const StateDict state = weigh.state_dict();
    const auto of = [&](const char* name) { return state.tensor(name).to_vector(); };
    const std::vector<double> w1 = of("fc1.weight"), b1 = of("fc1.bias"), w2 = of("fc2.weight"),
                              b2 = of("fc2.bias");
    const Tensor x = normal({2, 3, 5, 4}, DType::f64);
    const std::vector<double> in = x.to_vector(), out = weigh(x).to_vector();
    for (std::size_t n = 0; n < 2; ++n) {
      double mean[4] = {}, squeezed[2], gate[4];
      for (std::size_t i = 0; i < 60; ++i) mean[i % 4] += in[60 * n + i] / 15;
      for (std::size_t k = 0; k < 2; ++k) {
        double sum = b1[k];
        for (std::size_t c = 0; c < 4; ++c) sum += w1[4 * k + c] * mean[c];
        squeezed[k] = std::max(sum, 0.0);
      }
      for (std::size_t c = 0; c < 4; ++c) {
        const double score = b2[c] + w2[2 * c] * squeezed[0] + w2[2 * c + 1] * squeezed[1];
        gate[c] = hard ? std::min(std::max(score + 3, 0.0), 6.0) / 6 : 1 / (1 + std::exp(-score));
      }
      for (std::size_t i = 0; i < 60; ++i)
        EXPECT_NEAR(out[60 * n + i], in[60 * n + i] * gate[i % 4], 1e-14) << hard;
    }
  }
}

TEST(SqueezeExcitationGradcheck, InputAndParameters) {
  SqueezeExcitation weigh(3, 2, {.activation = Activation::silu});
  weigh.to(DType::f64);
  weigh.initialize(kSeed);
  std::vector<Tensor> inputs{normal({2, 2, 3, 3}, DType::f64)};
  require_grad(inputs[0]);
  for (const Parameter& parameter : weigh.parameters()) inputs.push_back(parameter.tensor);
  gradcheck([&](std::span<const Tensor> in) { return weigh(in[0]); }, inputs);
}

// Convolution and batch norm -------------------------------------------------------------------------------

TEST(ConvNorm, HasTheBitsOfASequentialAndOfItsNormAsResidual) {
  const Conv2dOptions conv{.padding = 1, .bias = false};
  ConvNorm layer(16, 16, 3, conv, {.activation = Activation::relu}), shortcut(16, 16, 3, conv);
  Sequential parts;
  parts.add<Conv2d>(16, 16, 3, conv);
  parts.append(std::make_unique<BatchNorm>(16, BatchNormOptions{.activation = Activation::relu}));
  for (Module* module : std::initializer_list<Module*>{&layer, &shortcut, &parts}) module->initialize(kSeed);
  const Tensor x = normal({9, 16, 16, 16});
  for (const bool training : {false, true}) {  // before training moves the statistics
    for (Module* module : std::initializer_list<Module*>{&layer, &shortcut, &parts}) module->train(training);
    EXPECT_TRUE(test::same_bits(layer(x), parts(x)));
    const Tensor at_once = layer(x, shortcut.deferred(x)), before = layer(x, shortcut(x));
    EXPECT_TRUE(test::same_bits(at_once, before));
    const DeferredNorm first = layer.deferred(x, x), second = shortcut.deferred(first, first);
    const Tensor chained = layer(second, first), one_by_one = [&] {
      const Tensor a = layer(x, x), b = shortcut(a, a);
      return layer(b, a);
    }();
    EXPECT_TRUE(test::same_bits(chained, one_by_one));
    EXPECT_FALSE(test::same_bits(at_once, layer(x)));
  }
}

// Options of the models ------------------------------------------------------------------------------------

TEST(ModelOptions, WidthAndDepthGiveThePublishedSizes) {
  const ModelOptions imagenet{1000, 3, 224};
  EXPECT_EQ(MobileNetV2(imagenet, {.width = 0.5}).parameter_count(),
            1'968'680);  // torchvision, as the others
  EXPECT_EQ(MobileNetV2(imagenet, {.width = 1.4}).parameter_count(), 6'108'776);
  EXPECT_EQ(MobileNetV3(false, imagenet, {.width = 0.75}).parameter_count(), 1'653'920);
  EXPECT_EQ(EfficientNet(imagenet, {.depth = 1.1}).parameter_count(), 7'794'184);  // B1
  EXPECT_EQ(EfficientNet(imagenet, {.width = 1.1, .depth = 1.2, .dropout = 0.3}).parameter_count(),
            9'109'994);                                                                    // B2
  EXPECT_EQ(ConvNeXt(imagenet, {.blocks = {3, 3, 27, 3}}).parameter_count(), 50'223'688);  // small
  EXPECT_THROW(MobileNetV2(imagenet, {.width = 0}), ArgumentError);
  EXPECT_THROW(EfficientNet(imagenet, {.depth = -1}), ArgumentError);
}

TEST(ModelOptions, LayerScaleKeepsItsDigitsInHalfPrecision) {
  ConvNeXt net({2, 3, 32}, {.blocks = {1, 1, 1, 1}, .widths = {8, 8, 8, 8}});
  net.to(DType::f16);
  net.initialize(kSeed);
  EXPECT_EQ(net.state_dict().tensor("features.1.0.layer_scale").to_vector(),
            std::vector<double>(8, static_cast<double>(1e-6f)));
  EXPECT_EQ(net(normal({1, 32, 32, 3}, DType::f16)).shape(), (Shape{1, 2}));
}

// UNet -----------------------------------------------------------------------------------------------------

TEST(UNet, GivesAClassForEveryPixelOfAnyFittingSize) {
  for (const bool bilinear : {false, true}) {
    for (const int depth : {1, 3}) {
      UNet net({.classes = 5, .in_channels = 1}, {.depth = depth, .width = 4, .bilinear = bilinear});
      net.initialize(kSeed);
      for (const auto& [h, w] : {std::pair<std::int64_t, std::int64_t>{8, 8}, {16, 24}, {8, 40}})
        EXPECT_EQ(net(normal({2, h, w, 1})).shape(), (Shape{2, h, w, 5})) << depth;
      EXPECT_EQ(net.parameters().back().name, "head.bias");  // whose classes load_pretrained() may replace
    }
  }
  EXPECT_EQ(UNet({}).parameter_count(), 31'037'698);  // as commonly counted, with two classes
}

TEST(UNet, RefusesSizesThatDoNotHalve) {
  UNet net({}, {.depth = 3, .width = 4});
  net.initialize(kSeed);
  for (const Shape& shape : {Shape{1, 12, 16, 3}, Shape{1, 16, 4, 3}, Shape{16, 16, 3}}) {
    EXPECT_ERROR(ArgumentError, net(Tensor::zeros(shape)), "UNet", "[N, H, W, C]", "8",
                 fmt::format("{}", shape));
  }
  EXPECT_THROW(UNet({}, {.depth = 0}), ArgumentError);
  EXPECT_THROW(UNet({}, {.depth = 9}), ArgumentError);
}

}  // namespace athanor::nn::model_parts_test
