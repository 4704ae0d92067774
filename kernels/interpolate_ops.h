#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/interpolate.h"

// Which inputs an output reads along one axis, and which outputs read an input, written once for every
// backend. Positions are computed as in PyTorch, to the rounding, so that the nearest pixel is the same.

namespace athanor::kernels {

/// An axis whose positions are computed in A, the type of the values' arithmetic.
template <class A> struct PlacedAxis {
  std::int64_t inputs, outputs;
  A scale;
  bool align_corners;

  explicit PlacedAxis(const InterpolateAxis& axis)
      : inputs(axis.inputs),
        outputs(axis.outputs),
        scale(static_cast<A>(axis.scale)),
        align_corners(axis.align_corners) {}
};

/// An output is (1 - weight) x[low] + weight x[high]; high is low or low + 1.
template <class A> struct AxisTap {
  std::int64_t low, high;
  A weight;
};

/// The outputs [begin, end) that read an input.
struct Readers {
  std::int64_t begin, end;
};

/// Output o reads the input at floor(o scale), in f32 whatever the dtype.
struct Nearest {
  template <class A> ATH_HD static AxisTap<A> tap(const PlacedAxis<A>& axis, std::int64_t o) {
    const auto at =
        static_cast<std::int64_t>(std::floor(static_cast<float>(o) * static_cast<float>(axis.scale)));
    const std::int64_t input = std::min(at, axis.inputs - 1);
    return {input, input, A(0)};
  }
  /// The first output at or beyond position i, up to rounding.
  template <class A> ATH_HD static A inverse(const PlacedAxis<A>& axis, std::int64_t i) {
    return std::ceil(A(i) / axis.scale);
  }
};

/// Output o is at o scale, or at (o + 1/2) scale - 1/2 without aligned corners, and reads the inputs before
/// and after.
struct Bilinear {
  template <class A> ATH_HD static AxisTap<A> tap(const PlacedAxis<A>& axis, std::int64_t o) {
    const A at =
        axis.align_corners ? axis.scale * A(o) : std::max(axis.scale * (A(o) + A(0.5)) - A(0.5), A(0));
    const std::int64_t low = std::min(static_cast<std::int64_t>(at), axis.inputs - 1);
    return {low, std::min(low + 1, axis.inputs - 1), std::min(at - A(low), A(1))};
  }
  template <class A> ATH_HD static A inverse(const PlacedAxis<A>& axis, std::int64_t i) {
    const A shift = axis.align_corners ? A(0) : A(0.5);
    return std::ceil((A(i) + shift) / axis.scale - shift);
  }
};

/// The first output for which `reached` holds, as for all that follow; `guess` is near it.
template <class A, class F>
ATH_HD std::int64_t first_output(std::int64_t outputs, A guess, const F& reached) {
  std::int64_t o = guess > A(0) ? static_cast<std::int64_t>(std::min(guess, A(outputs))) : 0;
  while (o > 0 && reached(o - 1)) --o;
  while (o < outputs && !reached(o)) ++o;
  return o;
}

/// The outputs that read input i: positions never decrease, so they are contiguous.
template <class Mode, class A> ATH_HD Readers readers(const PlacedAxis<A>& axis, std::int64_t i) {
  if (axis.scale == A(0)) return {0, axis.outputs};                       // one output, on the first input
  constexpr std::int64_t kAhead = std::is_same_v<Mode, Nearest> ? 0 : 1;  // inputs read beyond a position
  return {first_output(axis.outputs, Mode::inverse(axis, i - kAhead),
                       [&](std::int64_t o) { return Mode::tap(axis, o).high >= i; }),
          first_output(axis.outputs, Mode::inverse(axis, i + 1),
                       [&](std::int64_t o) { return Mode::tap(axis, o).low > i; })};
}

/// The weight of input i in an output.
template <class A> ATH_HD A weight_of(const AxisTap<A>& tap, std::int64_t i) {
  return (tap.low == i ? A(1) - tap.weight : A(0)) + (tap.high == i ? tap.weight : A(0));
}

/// The weighted mean of four corners, by row and column.
template <class A> ATH_HD A mix(A low_low, A low_high, A high_low, A high_high, A row, A column) {
  const A top = (A(1) - column) * low_low + column * low_high,
          bottom = (A(1) - column) * high_low + column * high_high;
  return (A(1) - row) * top + row * bottom;
}

/// Calls f.operator()<Mode>().
template <class F> void dispatch_interpolation(Interpolation mode, const F& f) {
  if (mode == Interpolation::nearest) return f.template operator()<Nearest>();
  f.template operator()<Bilinear>();
}

}  // namespace athanor::kernels
