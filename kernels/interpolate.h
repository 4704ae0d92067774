#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor {

/// How a resampled value is made: the nearest input, or a weighted mean of the four around it.
enum class Interpolation : std::uint8_t { nearest, bilinear };

namespace kernels {

/// The resampling of one axis.
struct InterpolateAxis {
  std::int64_t inputs = 0, outputs = 0;
  double scale = 1;            ///< inputs per output
  bool align_corners = false;  ///< aligns the centres of the first and last pixels, not their edges
};

/// Both axes of an image.
struct InterpolateAxes {
  InterpolateAxis h, w;
};

// x [N, H, W, C] and y [N, P, Q, C], dense, one dtype, only N and C may be 0. kernels/interpolate_ops.h
// defines which inputs are read. Every element of the result is written once.

/// Samples x at the positions of y: the nearest value (any dtype), or a mean of four, weighted in f32 (f64
/// for f64; floating). Moves 1 + 1 / (P Q / H W) elements per element of y.
ATH_KERNEL(void, interpolate_forward, Interpolation mode, const InterpolateAxes& axes, const Tensor& x,
           Out y);
/// dx = weighted sum of dy over all readers of an input. Floating. Gathers: no atomics, one rounding.
ATH_KERNEL(void, interpolate_backward, Interpolation mode, const InterpolateAxes& axes, const Tensor& dy,
           Out dx);
ATH_MAP(interpolate_backward, (Interpolation, const InterpolateAxes&, const Tensor& dy, Out dx),
        "interpolate_backward", (dy), (dx))

}  // namespace kernels
}  // namespace athanor
