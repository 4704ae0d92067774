#include "nn/models/resnet.h"

#include "autograd/pool.h"
#include "autograd/shape.h"
#include "nn/conv_norm.h"

namespace athanor::nn {
namespace {

constexpr BatchNormOptions kNormRelu{.activation = Activation::relu};

void fan_out_normal(const Tensor& w, RandomKey key) {
  init::kaiming_normal(w, key, init::kReluGain, init::Fan::out);
}

Conv2dOptions conv(std::int64_t stride, std::int64_t padding) {
  return {.stride = stride, .padding = padding, .bias = false, .weight_init = fan_out_normal};
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
  if (stride == 1 && in == out) return;
  downsample_.emplace();
  downsample_->add<Conv2d>(in, out, 1, conv(stride, 0)).add<BatchNorm>(out);
}

void ResidualBlock::register_shortcut() {
  if (downsample_) register_module("downsample", *downsample_);
}

template <class Branch>
Tensor ResidualBlock::join(Conv2d& conv, BatchNorm& norm, const Tensor& x, const Branch& branch) {
  if (downsample_ && training()) {
    BatchNorm& other_norm = static_cast<BatchNorm&>((*downsample_)[1]);
    const ConvAndSums other = with_sums(static_cast<Conv2d&>((*downsample_)[0]), other_norm, x);
    return norm.forward_added(with_sums(conv, norm, branch()), other_norm, other);
  }
  const Tensor other = downsample_ ? (*downsample_)(x) : x;
  return conv_norm_act(conv, norm, branch(), other);
}

BasicBlock::BasicBlock(std::int64_t in, std::int64_t width, std::int64_t stride)
    : ResidualBlock(in, width, stride),
      conv1(in, width, 3, conv(stride, 1)),
      conv2(width, width, 3, conv(1, 1)),
      bn1(width, kNormRelu),
      bn2(width, kNormRelu) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  register_module("conv2", conv2);
  register_module("bn2", bn2);
  register_shortcut();
}

Tensor BasicBlock::forward(const Tensor& x) {
  return join(conv2, bn2, x, [&] { return conv_norm_act(conv1, bn1, x); });
}

Bottleneck::Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride)
    : ResidualBlock(in, width * kExpansion, stride),
      conv1(in, width, 1, conv(1, 0)),
      conv2(width, width, 3, conv(stride, 1)),
      conv3(width, width * kExpansion, 1, conv(1, 0)),
      bn1(width, kNormRelu),
      bn2(width, kNormRelu),
      bn3(width * kExpansion, kNormRelu) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  register_module("conv2", conv2);
  register_module("bn2", bn2);
  register_module("conv3", conv3);
  register_module("bn3", bn3);
  register_shortcut();
}

Tensor Bottleneck::forward(const Tensor& x) {
  return join(conv3, bn3, x, [&] { return conv_norm_act(conv2, bn2, conv_norm_act(conv1, bn1, x)); });
}

// The network ----------------------------------------------------------------------------------------------

ResNet::ResNet(const ResNetConfig& config, const ModelOptions& options)
    : imagenet_stem_(config.imagenet_stem),
      conv1(options.in_channels, config.width, config.imagenet_stem ? 7 : 3,
            config.imagenet_stem ? conv(2, 3) : conv(1, 1)),
      bn1(config.width, kNormRelu),
      fc(features_of(config), options.classes) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
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
  Tensor y = conv_norm_act(conv1, bn1, x);
  if (imagenet_stem_) y = maxpool(y);
  for (Sequential& layer : layers) {  // block by block, so that the layer's input can be freed early
    for (std::size_t i = 0; i < layer.size(); ++i) y = layer[i](y);
  }
  return fc(flatten(adaptive_avg_pool2d(y, 1, 1)));
}

}  // namespace athanor::nn
