#pragma once

#include <cstdint>

#include "kernels/interpolate.h"
#include "tensor/tensor.h"

namespace athanor {

struct InterpolateParams {
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;     ///< bilinear: aligns the centres of the corner pixels, not their edges
  std::int64_t size[2] = {0, 0};  ///< of the result, along H and W; set both or neither
  double scale[2] = {0, 0};       ///< used without a size, which is then floor(H scale)
};

/// Resamples images without an anti-aliasing filter: x [N, H, W, C] -> [N, P, Q, C]. With s = H / P, or 1 /
/// scale if given, and columns likewise:
///   nearest: y[p] = x[floor(p s)], any dtype, recorded for floating ones;
///   bilinear: y[p] = x at (p + 1/2) s - 1/2, or at p (H - 1) / (P - 1) with align_corners, linear between
///   the two nearest rows and columns; floating, in f32 (f64 for f64).
/// Positions are f32 (f64 for bilinear f64), as in PyTorch, whose code for CPUs copies an axis whose size a
/// scale keeps without being 1, or doubles without being 2. Bilinear turns an infinity of weight 0 into NaN.
/// Throws ArgumentError on rank, dtype and empty images, and unless exactly one of size and scale is given.
Tensor interpolate(const Tensor& x, const InterpolateParams& params);

/// Channels to pixels: x [N, H, W, C r^2] -> [N, r H, r W, C], with y[n, h r + i, w r + j, c] =
/// x[n, h, w, (c r + i) r + j]. Any dtype. Source: Shi et al. 2016, arXiv:1609.05158.
Tensor pixel_shuffle(const Tensor& x, std::int64_t r);
/// The reverse: x [N, r H, r W, C] -> [N, H, W, C r^2].
Tensor pixel_unshuffle(const Tensor& x, std::int64_t r);

}  // namespace athanor
