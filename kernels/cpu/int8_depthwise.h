#pragma once

#include <cstdint>

#include "kernels/int8.h"

// The inner loops of int8_depthwise.cpp. A lane of a vector is a channel, whose 32 bits hold `taps` values,
// one of each of so many adjacent rows of x: a product of two vectors multiplies all of them, and adds what
// they give to the lane's sum. Sums are exact.

namespace athanor::cpu::int8_depthwise {

/// Rows of a band of x, and how their columns are interleaved: columns [-before, columns - before) of x, each
/// `groups` vectors of `taps` rows.
struct Columns {
  const std::uint8_t* const* rows;  ///< [groups * taps]: the first column, first channel; null: outside x
  std::int64_t step;                ///< bytes from a column of x to the next: its channels
  std::int64_t before, width, columns;
  std::int64_t groups, channels;  ///< channels: up to Code::lanes
  std::uint8_t zero;              ///< of what lies outside x
  std::byte* to;                  ///< [groups, columns, vector]
};

/// One or two adjacent rows of y, for the channels of a vector.
struct Sums {
  const std::byte* x;  ///< Columns::to
  std::int64_t columns, stride, dilation;
  std::int64_t groups, taps;  ///< taps: columns of the filter
  const std::byte* w;         ///< [rows, groups, taps, vector]
  std::int64_t rows, width;   ///< of y
  std::int64_t channels;
  const float* multiplier;   ///< [channels]
  const std::int32_t* bias;  ///< [channels]
  std::int64_t row, step;    ///< elements from a row of y to the next, and from a pixel
  /// The results, u8 or f32: one is null.
  std::uint8_t* y;
  float* real;
  const std::uint8_t* residual;  ///< of y's layout, or null
  float residual_scale;
  std::int32_t residual_zero;
  kernels::Rounding rounding;
};

/// The loops for one instruction set.
struct Code {
  std::int64_t lanes, taps, weight_bytes;  ///< of one value of a filter
  void (*interleave)(const Columns& columns);
  void (*sums)(const Sums& sums);

  std::int64_t vector_bytes() const { return lanes * 4; }
};

/// That of this CPU. Only if has_avx2().
const Code& code();

// By instruction set: int8_depthwise_avx2.cpp and int8_depthwise_avx512.cpp, which needs VNNI.
namespace avx2 {
const Code& code();
}
namespace avx512_vnni {
const Code& code();
}

}  // namespace athanor::cpu::int8_depthwise
