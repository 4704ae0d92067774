#include "nn/models/resnet.h"

#include "autograd/op_observer.h"
#include "autograd/pool.h"
#include "autograd/shape.h"
#include "nn/pool.h"

namespace athanor::nn {
namespace {

constexpr BatchNormOptions kNormRelu{.activation = Activation::relu};

Conv2dOptions conv(std::int64_t stride, std::int64_t padding) {
  return {.stride = stride, .padding = padding, .bias = false, .weight_init = init::kaiming_fan_out};
}

std::int64_t features_of(const ResNetConfig& config) {
  std::int64_t width = config.width;
  for (std::size_t stage = 1; stage < config.blocks.size() && config.blocks[stage] > 0; ++stage) width *= 2;
  return width * (config.bottleneck ? Bottleneck::kExpansion : BasicBlock::kExpansion);
}

template <class Block>
std::int64_t add_stage(Sequential& stage, int blocks, std::int64_t in, std::int64_t width,
                       std::int64_t stride) {
  for (int i = 0; i < blocks; ++i) {
    stage.add<Block>(in, width, i == 0 ? stride : 1);
    in = width * Block::kExpansion;
  }
  return in;
}

}  // namespace

// Blocks ---------------------------------------------------------------------------------------------------

ResidualBlock::ResidualBlock(std::int64_t in, std::int64_t out, std::int64_t stride) {
  if (stride != 1 || in != out) downsample_.emplace(in, out, 1, conv(stride, 0));
}

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

BasicBlock::BasicBlock(std::int64_t in, std::int64_t width, std::int64_t stride)
    : ResidualBlock(in, width, stride),
      conv1(in, width, 3, conv(stride, 1), kNormRelu),
      conv2(width, width, 3, conv(1, 1), kNormRelu) {
  register_layers({&conv1, &conv2});
}

DeferredNorm BasicBlock::run(const DeferredNorm& x) {
  const DeferredNorm residual = shortcut(x);
  return conv2.deferred(conv1.deferred(x), residual);
}

Bottleneck::Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride)
    : ResidualBlock(in, width * kExpansion, stride),
      conv1(in, width, 1, conv(1, 0), kNormRelu),
      conv2(width, width, 3, conv(stride, 1), kNormRelu),
      conv3(width, width * kExpansion, 1, conv(1, 0), kNormRelu) {
  register_layers({&conv1, &conv2, &conv3});
}

DeferredNorm Bottleneck::run(const DeferredNorm& x) {
  const DeferredNorm residual = shortcut(x);
  return conv3.deferred(conv2.deferred(conv1.deferred(x)), residual);
}

// The network ----------------------------------------------------------------------------------------------

ResNet::ResNet(const ResNetConfig& config, const ModelOptions& options)
    : imagenet_stem_(config.imagenet_stem),
      conv1(options.in_channels, config.width, config.imagenet_stem ? 7 : 3,
            config.imagenet_stem ? conv(2, 3) : conv(1, 1), kNormRelu),
      fc(features_of(config), options.classes) {
  register_module("conv1", conv1.conv);
  register_module("bn1", conv1.norm);
  std::int64_t channels = config.width, width = config.width;
  for (std::size_t i = 0; i < layers.size() && config.blocks[i] > 0; ++i) {
    const std::int64_t stride = i == 0 ? 1 : 2;
    channels = config.bottleneck
                   ? add_stage<Bottleneck>(layers[i], config.blocks[i], channels, width, stride)
                   : add_stage<BasicBlock>(layers[i], config.blocks[i], channels, width, stride);
    register_module(fmt::format("layer{}", i + 1), layers[i]);
    width *= 2;
  }
  register_module("fc", fc);
}

Tensor ResNet::forward(const Tensor& x) {
  DeferredNorm y = imagenet_stem_ ? conv1.pooled(x, square_window(3, 2, 1)) : conv1(x);
  for (Sequential& layer : layers) {  // block by block, so that the layer's input can be freed early
    for (std::size_t i = 0; i < layer.size(); ++i) y = static_cast<ResidualBlock&>(layer[i]).deferred(y);
  }
  return fc(flatten(adaptive_avg_pool2d(y.value(), 1, 1)));
}

}  // namespace athanor::nn
