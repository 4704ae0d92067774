#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "nn/conv2d.h"
#include "nn/models/model.h"
#include "nn/pool.h"

namespace athanor::nn {

struct UNetOptions {
  int depth = 4;            ///< times the image is halved
  std::int64_t width = 64;  ///< channels at full size; each halving doubles them
  bool bilinear = false;  ///< enlarges by interpolation and a 1x1 convolution, not by a transposed one of 2x2
};

/// A class for every pixel: images [N, H, W, in_channels] -> logits [N, H, W, classes], for targets [N, H,
/// W]. H and W are multiples of 2^depth. Twice a 3x3 convolution, batch norm and ReLU at every size ("down1",
/// ..., "bottom"); on the way up the image is enlarged ("enlarge1", ...), joined with that of its size from
/// the way down, and goes through two more ("up1", ...); 1 is full size. "head" is a 1x1 convolution. Source:
/// Ronneberger, Fischer and Brox 2015, arXiv:1505.04597; theirs neither pads nor normalises.
class UNet final : public Module {
 public:
  static constexpr int kMostDepth = 8;

  /// 2 classes and 3 channels where `options` say 0; its image_size does not matter.
  explicit UNet(const ModelOptions& options, const UNetOptions& more = {});
  Tensor forward(const Tensor& x) override;

 private:
  int depth_;
  std::array<std::unique_ptr<Module>, kMostDepth> down_, enlarge_, up_;
  std::unique_ptr<Module> bottom_;
  MaxPool2d pool_{2};
  Conv2d head_;
};

}  // namespace athanor::nn
