#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace athanor {

enum class Interpolation : std::uint8_t { nearest, bilinear };

namespace kernels {

/// How one axis is resampled.
struct InterpolateAxis {
  std::int64_t inputs = 0, outputs = 0;
  double scale = 1;            ///< inputs per output
  bool align_corners = false;  ///< the first and last inputs and outputs lie on each other, not their edges
};

struct InterpolateAxes {
  InterpolateAxis h, w;
};

// x [N, H, W, C] and y [N, P, Q, C], dense, one dtype, no axis of them empty but N and C. What is read is
// defined in kernels/interpolate_ops.h. Every element of the result is written, once.

/// y = x at the places of y: the nearest value (any dtype), or a mean of four, weighed in f32 (f64 for f64;
/// floating). Moves 1 + 1 / (P Q / H W) elements per element of y.
template <class Context>
void interpolate_forward(Context& context, Interpolation mode, const InterpolateAxes& axes, const Tensor& x,
                         const Tensor& y);
/// dx = sum of dy over what read it, with its weight there. Floating. Gathers: no atomics, one rounding.
template <class Context>
void interpolate_backward(Context& context, Interpolation mode, const InterpolateAxes& axes, const Tensor& dy,
                          const Tensor& dx);

}  // namespace kernels
}  // namespace athanor
