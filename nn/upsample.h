#pragma once

#include <cstdint>

#include "autograd/interpolate.h"
#include "nn/module.h"

namespace athanor::nn {

/// Resamples images: see interpolate() in autograd/interpolate.h.
class Upsample final : public Module {
 public:
  /// Scales H and W by the same factor.
  explicit Upsample(double scale, Interpolation mode = Interpolation::nearest, bool align_corners = false)
      : Upsample({.mode = mode, .align_corners = align_corners, .scale = {scale, scale}}) {}
  explicit Upsample(const InterpolateParams& params) : params_(params) {}
  Tensor forward(const Tensor& x) override { return interpolate(x, params_); }

 private:
  InterpolateParams params_;
};

/// Channels to pixels: [N, H, W, C r^2] -> [N, r H, r W, C].
class PixelShuffle final : public Module {
 public:
  explicit PixelShuffle(std::int64_t r) : r_(r) {}
  Tensor forward(const Tensor& x) override { return pixel_shuffle(x, r_); }

 private:
  std::int64_t r_;
};

/// Pixels to channels: [N, r H, r W, C] -> [N, H, W, C r^2].
class PixelUnshuffle final : public Module {
 public:
  explicit PixelUnshuffle(std::int64_t r) : r_(r) {}
  Tensor forward(const Tensor& x) override { return pixel_unshuffle(x, r_); }

 private:
  std::int64_t r_;
};

}  // namespace athanor::nn
