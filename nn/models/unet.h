#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "nn/conv2d.h"
#include "nn/models/model.h"
#include "nn/pool.h"

namespace athanor::nn {

struct UNetOptions {
  int depth = 4;            ///< number of times the image is halved
  std::int64_t width = 64;  ///< channels at full size; each halving doubles them
  bool bilinear = false;    ///< upsamples by interpolation and a 1x1 convolution, not a 2x2 transposed one
};

/// Semantic segmentation: images [N, H, W, in_channels] -> logits [N, H, W, classes], for targets [N, H, W].
/// H and W are multiples of 2^depth. Each size has two 3x3 convolutions with batch norm and ReLU ("down1",
/// ..., "bottom"; 1 is full size). On the way up the image is enlarged ("enlarge1", ...), joined with the one
/// of that size from the way down, and convolved twice more ("up1", ...). "head" is a 1x1 convolution.
/// Source: Ronneberger, Fischer and Brox 2015, arXiv:1505.04597; theirs neither pads nor normalises.
class UNet final : public Module {
 public:
  static constexpr int kMaxDepth = 8;

  /// In `options`, 0 means 2 classes and 3 channels; image_size is ignored.
  explicit UNet(const ModelOptions& options, const UNetOptions& more = {});
  Tensor forward(const Tensor& x) override;

 private:
  int depth_;
  std::array<std::unique_ptr<Module>, kMaxDepth> down_, enlarge_, up_;
  std::unique_ptr<Module> bottom_;
  MaxPool2d pool_{2};
  Conv2d head_;
};

}  // namespace athanor::nn
