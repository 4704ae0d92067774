#pragma once

#include <array>
#include <initializer_list>
#include <memory>

#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/sequential.h"

namespace athanor::nn {

/// The shape of a residual network.
struct ResNetConfig {
  std::array<int, 4> blocks{};    ///< of each stage; 0: no such stage
  std::int64_t width = 64;        ///< channels of the first stage; each stage doubles them
  bool bottleneck = false;        ///< 1x1, 3x3, 1x1 with four times the channels, instead of two 3x3
  bool imagenet_stem = true;      ///< 7x7 stride 2 and a pooling, instead of one 3x3
  std::int64_t groups = 1;        ///< of the 3x3 of a bottleneck (ResNeXt)
  std::int64_t group_width = 64;  ///< channels of such a group where a plain 3x3 has 64
  bool variant_d = false;  ///< the stem has three 3x3, and a shortcut pools before its 1x1; see kResNet50D
};

/// The networks of He et al. 2015, table 1, and those with the stem for images of 32x32.
inline constexpr ResNetConfig kResNet18{{2, 2, 2, 2}, 64, false, true};
inline constexpr ResNetConfig kResNet34{{3, 4, 6, 3}, 64, false, true};
inline constexpr ResNetConfig kResNet50{{3, 4, 6, 3}, 64, true, true};
inline constexpr ResNetConfig kResNet101{{3, 4, 23, 3}, 64, true, true};
inline constexpr ResNetConfig kResNet152{{3, 8, 36, 3}, 64, true, true};
inline constexpr ResNetConfig kResNet18Cifar{{2, 2, 2, 2}, 64, false, false};
inline constexpr ResNetConfig kResNet34Cifar{{3, 4, 6, 3}, 64, false, false};
inline constexpr ResNetConfig kResNet50Cifar{{3, 4, 6, 3}, 64, true, false};
/// Zagoruyko and Komodakis 2016, arXiv:1605.07146: twice the channels in the 3x3.
inline constexpr ResNetConfig kWideResNet50{{3, 4, 6, 3}, 64, true, true, 1, 128};
/// Xie et al. 2017, arXiv:1611.05431: 32 groups.
inline constexpr ResNetConfig kResNeXt50{{3, 4, 6, 3}, 64, true, true, 32, 4};
/// He et al. 2019, arXiv:1812.01187, section 4. Names and initial values are those of timm's resnet50d, whose
/// branches start from zero: their last norm has a gamma of 0.
inline constexpr ResNetConfig kResNet50D{{3, 4, 6, 3}, 64, true, true, 1, 64, true};
/// He et al. 2015, section 4.2 (6n + 2 layers), with projections (option B) where the paper's table 6 has
/// zero padding (option A): 272,474 parameters instead of 269,722.
inline constexpr ResNetConfig kResNet20{{3, 3, 3, 0}, 16, false, false};
inline constexpr ResNetConfig kResNet56{{9, 9, 9, 0}, 16, false, false};

/// activation(branch + shortcut), where the shortcut is x or, if shapes differ, norm(1x1 conv(x)). Variant D
/// takes the means of 2x2 pixels before that convolution, instead of every other pixel.
class ResidualBlock : public Module {
 public:
  /// Where a block stands in its network.
  struct Place {
    std::int64_t in, width, stride;
  };

  Tensor forward(const Tensor& x) final { return run(x).value(); }
  /// The same of, and as, a tensor whose last norm may be left to the block that it is handed to.
  DeferredNorm deferred(const DeferredNorm& x);

 protected:
  ResidualBlock(const ResNetConfig& config, const Place& place, std::int64_t out);
  ~ResidualBlock() override;
  /// Names the branch's layers "conv1" and "bn1", ..., and the shortcut "downsample".
  void register_layers(std::initializer_list<ConvNorm*> branch);
  DeferredNorm shortcut(const DeferredNorm& x);
  virtual DeferredNorm run(const DeferredNorm& x) = 0;

 private:
  class Downsample;

  std::unique_ptr<Downsample> downsample_;
};

/// Two 3x3 convolutions.
class BasicBlock final : public ResidualBlock {
 public:
  static constexpr std::int64_t kExpansion = 1;
  BasicBlock(const ResNetConfig& config, const Place& place);

 private:
  DeferredNorm run(const DeferredNorm& x) override;

  ConvNorm conv1, conv2;
};

/// 1x1, 3x3 (in groups), 1x1. The 3x3 has the stride ("v1.5"): 0.5 % more accurate than in the paper, and 5 %
/// slower. Source: Goyal et al. 2017, arXiv:1706.02677, section 5.1.
class Bottleneck final : public ResidualBlock {
 public:
  static constexpr std::int64_t kExpansion = 4;
  Bottleneck(const ResNetConfig& config, const Place& place);

 private:
  DeferredNorm run(const DeferredNorm& x) override;

  ConvNorm conv1, conv2, conv3;
};

/// Residual network; names and initial values as in torchvision.
/// Source: He, Zhang, Ren and Sun 2015, arXiv:1512.03385.
class ResNet final : public Module {
 public:
  ResNet(const ResNetConfig& config, const ModelOptions& options);
  ~ResNet() override;
  Tensor forward(const Tensor& x) override;

 private:
  class DeepStem;

  bool imagenet_stem_;
  ConvNorm conv1;  // of a deep stem, the last convolution
  std::unique_ptr<DeepStem> deep_stem_;
  std::array<Sequential, 4> layers;
  Linear fc;
};

}  // namespace athanor::nn
