#include "nn/models/resnet.h"

#include <algorithm>

#include "autograd/op_observer.h"
#include "autograd/pool.h"
#include "autograd/shape.h"
#include "nn/models/detail/conv_options.h"
#include "nn/pool.h"

namespace athanor::nn {
namespace {

std::int64_t features_of(const ResNetConfig& config) {
  std::int64_t width = config.width;
  for (std::size_t stage = 1; stage < config.blocks.size() && config.blocks[stage] > 0; ++stage) width *= 2;
  return width * (config.bottleneck ? Bottleneck::kExpansion : BasicBlock::kExpansion);
}

/// The last norm of a branch.
BatchNormOptions last_norm(const ResNetConfig& config) {
  BatchNormOptions options = kNormRelu;
  if (config.variant_d) options.initial_scale = 0;
  return options;
}

std::int64_t grouped_width(const ResNetConfig& config, std::int64_t width) {
  return width * config.group_width / 64 * config.groups;
}

template <class Block>
std::int64_t add_stage(Sequential& stage, const ResNetConfig& config, int blocks,
                       ResidualBlock::Place place) {
  for (int i = 0; i < blocks; ++i) {
    stage.add<Block>(config, place);
    place.in = place.width * Block::kExpansion;
    place.stride = 1;
  }
  return place.in;
}

}  // namespace

// Blocks ---------------------------------------------------------------------------------------------------

class ResidualBlock::Downsample final : public Module {
 public:
  Downsample(std::int64_t in, std::int64_t out, std::int64_t stride, bool pools)
      : stride_(pools ? stride : 1), layer_(in, out, 1, unbiased(pools ? 1 : stride, 0)) {
    register_module(pools ? "1" : "0", layer_.conv);  // timm's "0" is the pooling
    register_module(pools ? "2" : "1", layer_.norm);
  }
  Tensor forward(const Tensor& x) override { return deferred(x).value(); }
  DeferredNorm deferred(const DeferredNorm& x) {
    if (stride_ == 1) return layer_.deferred(x);
    const Tensor image = x.value();
    Pool2dParams means = square_window(2, stride_);
    for (int axis = 0; axis < 2; ++axis)
      means.window[axis] = std::min(means.window[axis], image.dim(axis + 1));
    means.ceil_mode = true;
    means.count_padding = false;
    return layer_.deferred(avg_pool2d(image, means));
  }

 private:
  std::int64_t stride_;  // of the pooling; 1: there is none
  ConvNorm layer_;
};

ResidualBlock::ResidualBlock(const ResNetConfig& config, const Place& place, std::int64_t out) {
  if (place.stride != 1 || place.in != out)
    downsample_ = std::make_unique<Downsample>(place.in, out, place.stride, config.variant_d);
}

ResidualBlock::~ResidualBlock() = default;

void ResidualBlock::register_layers(std::initializer_list<ConvNorm*> branch) {
  int number = 0;
  for (ConvNorm* const layer : branch) {
    register_module(fmt::format("conv{}", ++number), layer->conv);
    register_module(fmt::format("bn{}", number), layer->norm);
  }
  if (downsample_) register_module("downsample", *downsample_);
}

DeferredNorm ResidualBlock::deferred(const DeferredNorm& x) {
  if (keeps_f32()) return (*this)(x.value());
  about_to_run();
  const LayerScope named(layer_name());
  // Branch and shortcut both read it, so it must be stored: a convolution does that to one with a residual.
  return run(x.unnormalised() && !x.residual().defined() ? DeferredNorm(x.value()) : x);
}

DeferredNorm ResidualBlock::shortcut(const DeferredNorm& x) {
  return downsample_ ? downsample_->deferred(x) : x;
}

BasicBlock::BasicBlock(const ResNetConfig& config, const Place& place)
    : ResidualBlock(config, place, place.width),
      conv1(place.in, place.width, 3, unbiased(place.stride, 1), kNormRelu),
      conv2(place.width, place.width, 3, unbiased(1, 1), last_norm(config)) {
  register_layers({&conv1, &conv2});
}

DeferredNorm BasicBlock::run(const DeferredNorm& x) {
  const DeferredNorm residual = shortcut(x);
  return conv2.deferred(conv1.deferred(x), residual);
}

Bottleneck::Bottleneck(const ResNetConfig& config, const Place& place)
    : ResidualBlock(config, place, place.width * kExpansion),
      conv1(place.in, grouped_width(config, place.width), 1, unbiased(1, 0), kNormRelu),
      conv2(grouped_width(config, place.width), grouped_width(config, place.width), 3,
            unbiased(place.stride, 1, config.groups), kNormRelu),
      conv3(grouped_width(config, place.width), place.width * kExpansion, 1, unbiased(1, 0),
            last_norm(config)) {
  register_layers({&conv1, &conv2, &conv3});
}

DeferredNorm Bottleneck::run(const DeferredNorm& x) {
  const DeferredNorm residual = shortcut(x);
  return conv3.deferred(conv2.deferred(conv1.deferred(x)), residual);
}

// The network ----------------------------------------------------------------------------------------------

/// Two 3x3 convolutions before the last one of the stem, whose name is here.
class ResNet::DeepStem final : public Module {
 public:
  DeepStem(std::int64_t in, std::int64_t width, Conv2d& last)
      : first_(in, width, 3, unbiased(2, 1), kNormRelu), second_(width, width, 3, unbiased(1, 1), kNormRelu) {
    register_module("0", first_.conv);
    register_module("1", first_.norm);
    register_module("3", second_.conv);
    register_module("4", second_.norm);
    register_module("6", last);
  }
  Tensor forward(const Tensor& x) override { return second_(first_.deferred(x), {}); }

 private:
  ConvNorm first_, second_;
};

ResNet::ResNet(const ResNetConfig& config, const ModelOptions& options)
    : imagenet_stem_(config.imagenet_stem),
      conv1(config.variant_d ? config.width / 2 : options.in_channels, config.width,
            config.imagenet_stem && !config.variant_d ? 7 : 3,
            config.imagenet_stem && !config.variant_d ? unbiased(2, 3) : unbiased(1, 1), kNormRelu),
      fc(features_of(config), options.classes) {
  if (config.variant_d) {
    deep_stem_ = std::make_unique<DeepStem>(options.in_channels, config.width / 2, conv1.conv);
    register_module("conv1", *deep_stem_);
  } else {
    register_module("conv1", conv1.conv);
  }
  register_module("bn1", conv1.norm);
  ResidualBlock::Place place{config.width, config.width, 1};
  for (std::size_t i = 0; i < layers.size() && config.blocks[i] > 0; ++i) {
    place.in = config.bottleneck ? add_stage<Bottleneck>(layers[i], config, config.blocks[i], place)
                                 : add_stage<BasicBlock>(layers[i], config, config.blocks[i], place);
    register_module(fmt::format("layer{}", i + 1), layers[i]);
    place.width *= 2;
    place.stride = 2;
  }
  register_module("fc", fc);
}

ResNet::~ResNet() = default;

Tensor ResNet::forward(const Tensor& x) {
  const Tensor in = deep_stem_ ? (*deep_stem_)(x) : x;
  DeferredNorm y = imagenet_stem_ ? conv1.pooled(in, square_window(3, 2, 1)) : conv1(in);
  for (Sequential& layer : layers) {  // block by block, so that the layer's input can be freed early
    for (std::size_t i = 0; i < layer.size(); ++i) y = static_cast<ResidualBlock&>(layer[i]).deferred(y);
  }
  return fc(flatten(adaptive_avg_pool2d(y.value(), 1, 1)));
}

}  // namespace athanor::nn
