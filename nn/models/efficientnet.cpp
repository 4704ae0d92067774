#include "nn/models/efficientnet.h"

#include <algorithm>
#include <cmath>

#include "autograd/pool.h"
#include "autograd/shape.h"
#include "nn/models/detail/inverted_residual.h"

namespace athanor::nn {
namespace {

struct EfficientNetStage {
  std::int64_t expansion, kernel, stride, channels;
  int blocks;
};
constexpr EfficientNetStage kEfficientNetStages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                                                     {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                                                     {6, 3, 1, 320, 1}};
constexpr auto kSilu = Activation::silu;

int blocks_of(const EfficientNetStage& stage, double depth) {
  return static_cast<int>(std::ceil(stage.blocks * depth));
}

}  // namespace

EfficientNet::EfficientNet(const ModelOptions& options, const EfficientNetOptions& more) {
  ATH_CHECK(more.width > 0 && more.depth > 0, "EfficientNet: width and depth must be > 0, but got {} and {}",
            more.width, more.depth);
  const auto scaled = [&](std::int64_t n) { return make_divisible(static_cast<double>(n) * more.width); };
  std::int64_t channels = scaled(32);
  features.append(conv_norm(options.in_channels, channels, {.stride = 2, .activation = kSilu}));
  int all_blocks = 0, block = 0;
  for (const EfficientNetStage& stage : kEfficientNetStages) all_blocks += blocks_of(stage, more.depth);
  for (const EfficientNetStage& stage : kEfficientNetStages) {
    auto blocks = std::make_unique<Sequential>();
    const std::int64_t out = scaled(stage.channels);
    for (int i = 0; i < blocks_of(stage, more.depth); ++i, ++block) {
      blocks->add<InvertedResidual>(InvertedResidualConfig{
          .in = channels,
          .expanded = make_divisible(static_cast<double>(channels * stage.expansion)),
          .out = out,
          .conv = {.kernel = stage.kernel, .stride = i == 0 ? stage.stride : 1, .activation = kSilu},
          .squeezed = std::max<std::int64_t>(1, channels / 4),
          .excitation = {.activation = Activation::silu,
                         .weight_init = init::kaiming_fan_out,
                         .bias_init = init::zeros},
          .stochastic_depth = more.stochastic_depth * block / all_blocks});
      channels = out;
    }
    features.append(std::move(blocks));
  }
  features.append(conv_norm(channels, 4 * channels, {.kernel = 1, .activation = kSilu}));
  const double bound = 1 / std::sqrt(static_cast<double>(options.classes));
  classifier =
      dropout_linear(4 * channels, options.classes, more.dropout,
                     [bound](const Tensor& w, RandomKey key) { init::uniform(w, key, -bound, bound); });
  register_module("features", features);
  register_module("classifier", *classifier);
}

Tensor EfficientNet::forward(const Tensor& x) {
  return (*classifier)(flatten(adaptive_avg_pool2d(features(x), 1, 1)));
}

}  // namespace athanor::nn
