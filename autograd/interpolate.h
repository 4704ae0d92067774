#pragma once

#include <cstdint>

#include "kernels/interpolate.h"
#include "tensor/tensor.h"

namespace athanor {

struct InterpolateParams {
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;     ///< bilinear: the centres of the corners lie on each other, not their edges
  std::int64_t size[2] = {0, 0};  ///< of the result, along H and W; both or neither
  double scale[2] = {0, 0};       ///< where no size is given: its size is floor(H scale)
};

/// Resamples images: x [N, H, W, C] -> [N, P, Q, C], larger or smaller, without smoothing before.
/// With s = H / P, or 1 / scale where that is given, and so for the columns:
///   nearest: y[p] = x[floor(p s)], any dtype, recorded for floating ones;
///   bilinear: y[p] = x at (p + 1/2) s - 1/2, or at p (H - 1) / (P - 1) where corners are aligned, linearly
///   between the two rows and two columns around it; floating, in f32 (f64 for f64).
/// Positions are computed in f32, but in f64 for bilinear f64. An infinity that bilinear weighs by 0 is NaN.
/// Throws ArgumentError on rank, dtype and empty images, and where size and scale are given both, or neither.
Tensor interpolate(const Tensor& x, const InterpolateParams& params);

/// Channels to pixels: x [N, H, W, C r^2] -> [N, r H, r W, C], with y[n, h r + i, w r + j, c] =
/// x[n, h, w, (c r + i) r + j]. Any dtype. Source: Shi et al. 2016, arXiv:1609.05158.
Tensor pixel_shuffle(const Tensor& x, std::int64_t r);
/// The reverse: x [N, r H, r W, C] -> [N, H, W, C r^2].
Tensor pixel_unshuffle(const Tensor& x, std::int64_t r);

}  // namespace athanor
