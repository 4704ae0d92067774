#include "nn/models/mobilenet.h"

#include <algorithm>
#include <span>

#include "autograd/pool.h"
#include "autograd/shape.h"
#include "nn/activation.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/models/detail/inverted_residual.h"

namespace athanor::nn {
namespace {

// Version 2: blocks of one width, the first with the stride.
struct MobileNetV2Stage {
  std::int64_t expansion, channels;
  int blocks;
  std::int64_t stride;
};
constexpr MobileNetV2Stage kMobileNetV2Stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2},
                                                   {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2},
                                                   {6, 320, 1, 1}};

// Version 3: a row is a block.
struct Row {
  std::int64_t kernel, expanded, out;
  bool squeezes;
  Activation activation;
  std::int64_t stride;
};
constexpr auto kRelu = Activation::relu, kHardswish = Activation::hardswish;
constexpr Row kLarge[] = {{3, 16, 16, false, kRelu, 1},       {3, 64, 24, false, kRelu, 2},
                          {3, 72, 24, false, kRelu, 1},       {5, 72, 40, true, kRelu, 2},
                          {5, 120, 40, true, kRelu, 1},       {5, 120, 40, true, kRelu, 1},
                          {3, 240, 80, false, kHardswish, 2}, {3, 200, 80, false, kHardswish, 1},
                          {3, 184, 80, false, kHardswish, 1}, {3, 184, 80, false, kHardswish, 1},
                          {3, 480, 112, true, kHardswish, 1}, {3, 672, 112, true, kHardswish, 1},
                          {5, 672, 160, true, kHardswish, 2}, {5, 960, 160, true, kHardswish, 1},
                          {5, 960, 160, true, kHardswish, 1}};
constexpr Row kSmall[] = {
    {3, 16, 16, true, kRelu, 2},       {3, 72, 24, false, kRelu, 2},      {3, 88, 24, false, kRelu, 1},
    {5, 96, 40, true, kHardswish, 2},  {5, 240, 40, true, kHardswish, 1}, {5, 240, 40, true, kHardswish, 1},
    {5, 120, 48, true, kHardswish, 1}, {5, 144, 48, true, kHardswish, 1}, {5, 288, 96, true, kHardswish, 2},
    {5, 576, 96, true, kHardswish, 1}, {5, 576, 96, true, kHardswish, 1}};

void check(const char* name, const MobileNetOptions& more) {
  ATH_CHECK(more.width > 0, "{}: width must be > 0, but got {}", name, more.width);
}

Tensor global_mean(const Tensor& x) {
  return flatten(adaptive_avg_pool2d(x, 1, 1));  // [N, C]
}

}  // namespace

MobileNetV2::MobileNetV2(const ModelOptions& options, const MobileNetOptions& more) {
  check("MobileNetV2", more);
  constexpr auto kRelu6 = Activation::relu6;
  std::int64_t channels = make_divisible(32 * more.width);
  features.append(conv_norm(options.in_channels, channels, {.stride = 2, .activation = kRelu6}));
  for (const MobileNetV2Stage& stage : kMobileNetV2Stages) {
    const std::int64_t out = make_divisible(static_cast<double>(stage.channels) * more.width);
    for (int i = 0; i < stage.blocks; ++i) {
      features.add<InvertedResidual>(
          InvertedResidualConfig{.in = channels,
                                 .expanded = channels * stage.expansion,
                                 .out = out,
                                 .conv = {.stride = i == 0 ? stage.stride : 1, .activation = kRelu6},
                                 .v2_names = true});
      channels = out;
    }
  }
  const std::int64_t last = make_divisible(1280 * std::max(1.0, more.width));
  features.append(conv_norm(channels, last, {.kernel = 1, .activation = kRelu6}));
  classifier = dropout_linear(last, options.classes, more.dropout, normal_01);
  register_module("features", features);
  register_module("classifier", *classifier);
}

Tensor MobileNetV2::forward(const Tensor& x) {
  return (*classifier)(global_mean(features(x)));
}

MobileNetV3::MobileNetV3(bool large, const ModelOptions& options, const MobileNetOptions& more) {
  check("MobileNetV3", more);
  const auto scaled = [&](std::int64_t n) { return make_divisible(static_cast<double>(n) * more.width); };
  ConvNormOptions conv{.stride = 2, .activation = kHardswish};
  if (!more.timm) {
    conv.eps = 0.001;
    conv.momentum = 0.01;
  }
  std::int64_t unscaled = 16, channels = scaled(unscaled);
  features.append(conv_norm(options.in_channels, channels, conv));
  for (const Row& row : large ? std::span<const Row>(kLarge) : std::span<const Row>(kSmall)) {
    conv.kernel = row.kernel;
    conv.stride = row.stride;
    conv.activation = row.activation;
    const std::int64_t expanded =
        more.timm
            ? make_divisible(static_cast<double>(channels * row.expanded) / static_cast<double>(unscaled))
            : scaled(row.expanded);
    const std::int64_t out = scaled(row.out);
    features.add<InvertedResidual>(InvertedResidualConfig{
        .in = channels,
        .expanded = expanded,
        .out = out,
        .conv = conv,
        .squeezed = row.squeezes ? make_divisible(static_cast<double>(expanded / 4)) : 0,
        .excitation = {.hard_gate = true, .weight_init = init::kaiming_fan_out, .bias_init = init::zeros}});
    unscaled = row.out;
    channels = out;
  }
  conv.kernel = conv.stride = 1;
  conv.activation = kHardswish;
  features.append(conv_norm(channels, 6 * channels, conv));

  const LinearOptions linear{.weight_init = normal_01, .bias_init = init::zeros};
  const std::int64_t at_full_width = large ? 1280 : 1024;
  const std::int64_t hidden = more.timm ? at_full_width : scaled(at_full_width);
  classifier.add<Linear>(6 * channels, hidden, linear)
      .add<Hardswish>()
      .add<Dropout>(static_cast<float>(more.dropout))
      .add<Linear>(hidden, options.classes, linear);
  register_module("features", features);
  register_module("classifier", classifier);
}

Tensor MobileNetV3::forward(const Tensor& x) {
  return classifier(global_mean(features(x)));
}

}  // namespace athanor::nn
