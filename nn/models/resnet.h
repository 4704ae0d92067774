#pragma once

#include <array>
#include <initializer_list>
#include <optional>

#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// The shape of a residual network.
struct ResNetConfig {
  std::array<int, 4> blocks{};  ///< of each stage; 0: no such stage
  std::int64_t width = 64;      ///< channels of the first stage; each stage doubles them
  bool bottleneck = false;      ///< 1x1, 3x3, 1x1 with four times the channels, instead of two 3x3
  bool imagenet_stem = true;    ///< 7x7 stride 2 and a pooling, instead of one 3x3
};

/// The networks of He et al. 2015, table 1, and those with the stem for images of 32x32.
inline constexpr ResNetConfig kResNet18{{2, 2, 2, 2}, 64, false, true};
inline constexpr ResNetConfig kResNet34{{3, 4, 6, 3}, 64, false, true};
inline constexpr ResNetConfig kResNet50{{3, 4, 6, 3}, 64, true, true};
inline constexpr ResNetConfig kResNet18Cifar{{2, 2, 2, 2}, 64, false, false};
inline constexpr ResNetConfig kResNet34Cifar{{3, 4, 6, 3}, 64, false, false};
inline constexpr ResNetConfig kResNet50Cifar{{3, 4, 6, 3}, 64, true, false};
/// He et al. 2015, section 4.2 (6n + 2 layers), with projections (option B) where the paper's table 6 has
/// zero padding (option A): 272,474 parameters instead of 269,722.
inline constexpr ResNetConfig kResNet20{{3, 3, 3, 0}, 16, false, false};
inline constexpr ResNetConfig kResNet56{{9, 9, 9, 0}, 16, false, false};

/// activation(branch + shortcut), where the shortcut is x or, if shapes differ, norm(1x1 conv(x)).
class ResidualBlock : public Module {
 public:
  Tensor forward(const Tensor& x) final { return run(x).value(); }
  /// The same of, and as, a tensor whose last norm may be left to the block that it is handed to.
  DeferredNorm deferred(const DeferredNorm& x);

 protected:
  ResidualBlock(std::int64_t in, std::int64_t out, std::int64_t stride);
  /// Names the branch's layers "conv1" and "bn1", ..., and the shortcut "downsample".
  void register_layers(std::initializer_list<ConvNorm*> branch);
  DeferredNorm shortcut(const DeferredNorm& x);
  virtual DeferredNorm run(const DeferredNorm& x) = 0;

 private:
  std::optional<ConvNorm> downsample_;
};

/// Two 3x3 convolutions.
class BasicBlock final : public ResidualBlock {
 public:
  static constexpr std::int64_t kExpansion = 1;
  BasicBlock(std::int64_t in, std::int64_t width, std::int64_t stride);

 private:
  DeferredNorm run(const DeferredNorm& x) override;

  ConvNorm conv1, conv2;
};

/// 1x1, 3x3, 1x1. The 3x3 has the stride ("v1.5"): 0.5 % more accurate than in the paper, and 5 % slower.
/// Source: Goyal et al. 2017, arXiv:1706.02677, section 5.1.
class Bottleneck final : public ResidualBlock {
 public:
  static constexpr std::int64_t kExpansion = 4;
  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride);

 private:
  DeferredNorm run(const DeferredNorm& x) override;

  ConvNorm conv1, conv2, conv3;
};

/// Residual network; names and initial values as in torchvision.
/// Source: He, Zhang, Ren and Sun 2015, arXiv:1512.03385.
class ResNet final : public Module {
 public:
  ResNet(const ResNetConfig& config, const ModelOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  bool imagenet_stem_;
  ConvNorm conv1;
  std::array<Sequential, 4> layers;
  Linear fc;
};

}  // namespace athanor::nn
