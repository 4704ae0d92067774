// No #pragma once: included once per instruction set, with ATH_ISA defined (vector.h), after its
//   kTaps: values of a lane; Weight: one of a filter; kMaxPixels: of the largest tile, such that the sums of
//   two rows of it, a value of x and two of the filter fit in registers
//   repeated(): a value of x in all places; store_interleaved(): kFloats bytes of each row, lane by lane
//   with_products(): a sum and what the products of a lane's values give

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/int8_depthwise.h"

namespace athanor::cpu::int8_depthwise::ATH_ISA {
namespace {

constexpr std::int64_t kVector = kFloats * 4;  ///< bytes

/// The first `count` bytes of kFloats.
ATH_TARGET inline __m128i load_some(const std::uint8_t* from, std::int64_t count) {
  if (count == kFloats) return load_bytes(from);
  alignas(16) std::uint8_t bytes[16] = {};
  std::memcpy(bytes, from, static_cast<std::size_t>(count));
  return load_bytes(bytes);
}

ATH_TARGET void interleave(const Columns& t) {
  const std::int64_t begin = std::min(t.before, t.columns), end = std::min(t.before + t.width, t.columns);
  alignas(16) std::uint8_t outside[16];
  std::fill_n(outside, 16, t.zero);
  std::byte* to = t.to;
  for (std::int64_t group = 0; group < t.groups; ++group) {
    const std::uint8_t* row[kTaps];
    std::int64_t step[kTaps];
    for (int i = 0; i < kTaps; ++i) {
      row[i] = t.rows[group * kTaps + i];
      step[i] = row[i] ? t.step : 0;
      if (!row[i]) row[i] = outside;
    }
    for (std::int64_t column = 0; column < begin; ++column, to += kVector) store_ints(to, repeated(t.zero));
    for (std::int64_t column = begin; column < end; ++column, to += kVector) {
      __m128i values[kTaps];
#pragma GCC unroll 4
      for (int i = 0; i < kTaps; ++i) values[i] = load_some(row[i], t.channels), row[i] += step[i];
      store_interleaved(to, values);
    }
    for (std::int64_t column = end; column < t.columns; ++column, to += kVector)
      store_ints(to, repeated(t.zero));
  }
}

/// What makes results of sums.
struct Finish {
  Floats multiplier;
  Ints bias;
  VectorRounding round;
  Floats residual_scale;
  Ints residual_minus_zero;

  ATH_TARGET explicit Finish(const Sums& t)
      : multiplier(load(t.multiplier)),
        bias(load_ints(t.bias)),
        round(t.rounding),
        residual_scale(all(t.residual_scale)),
        residual_minus_zero(all_ints(-t.residual_zero)) {}
};

/// `at`(i): of the first channel of the pixel of sum i.
template <int kCount>
ATH_TARGET inline void finish(const Sums& t, const Finish& f, const Ints* sum, const auto& at) {
  if (t.real) {
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i)
      store_first(t.real + at(i), t.channels, as_floats(sum[i]) * f.multiplier);
    return;
  }
  // Copies: for all that the compiler knows, a byte that is stored is one of `t` or `f`.
  const std::int64_t channels = t.channels;
  const std::uint8_t* const residual = t.residual;
  std::uint8_t* const y = t.y;
  const Floats multiplier = f.multiplier;
  const VectorRounding round = f.round;
#pragma GCC unroll 8
  for (int begin = 0; begin < kCount; begin += kRounded) {
    Floats v[kRounded];
#pragma GCC unroll 4
    for (int i = 0; i < kRounded; ++i) v[i] = as_floats(sum[std::min(begin + i, kCount - 1)]) * multiplier;
    if (residual) {
#pragma GCC unroll 4
      for (int i = 0; i < kRounded; ++i) {
        const Ints value = widened(load_some(residual + at(std::min(begin + i, kCount - 1)), channels));
        v[i] = v[i] + f.residual_scale * as_floats(sum_of(value, f.residual_minus_zero));
      }
    }
    alignas(64) std::uint8_t bytes[kVector];
    round(v, bytes);
#pragma GCC unroll 4
    for (int i = 0; i < kRounded; ++i) {
      if (begin + i == kCount) return;
      const std::uint8_t* const from = bytes + i * kFloats;
      std::uint8_t* const to = y + at(begin + i);
      if (channels == kFloats)
        store_bytes(to, load_bytes(from));
      else
        std::memcpy(to, from, static_cast<std::size_t>(channels));
    }
  }
}

/// kPixels adjacent results of kRows rows, from pixel q on.
template <int kPixels, int kRows> ATH_TARGET void tile(const Sums& t, const Finish& f, std::int64_t q) {
  Ints sum[kRows][kPixels];
#pragma GCC unroll 2
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) sum[row][i] = f.bias;
  const std::int64_t stride = t.stride * kVector, filter = t.groups * t.taps * kVector;
  const std::byte* w = t.w;
  for (std::int64_t group = 0; group < t.groups; ++group) {
    const std::byte *x0 = t.x + (group * t.columns + q * t.stride) * kVector, *x1 = x0 + 4 * stride;
    for (std::int64_t s = 0; s < t.taps; ++s) {
      Ints tap[kRows];
#pragma GCC unroll 2
      for (int row = 0; row < kRows; ++row) tap[row] = load_ints(w + row * filter);
#pragma GCC unroll 8
      for (int i = 0; i < kPixels; ++i) {
        const Ints x = load_ints((i < 4 ? x0 : x1) + i % 4 * stride);
#pragma GCC unroll 2
        for (int row = 0; row < kRows; ++row) sum[row][i] = with_products(sum[row][i], x, tap[row]);
      }
      w += kVector, x0 += t.dilation * kVector, x1 += t.dilation * kVector;
    }
  }
  finish<kRows * kPixels>(t, f, sum[0], [q, row = t.row, step = t.step](int i) {
    return i / kPixels * row + (q + i % kPixels) * step;
  });
}

template <int kRows> constexpr auto kTiles = []<int... kOf>(std::integer_sequence<int, kOf...>) {
  return std::array{&tile<kOf + 1, kRows>...};
}
(std::make_integer_sequence<int, kMaxPixels>());

ATH_TARGET void sums(const Sums& t) {
  const Finish finish(t);
  const auto& tiles = t.rows == 1 ? kTiles<1> : kTiles<2>;
  const std::int64_t count = (t.width + kMaxPixels - 1) / kMaxPixels;
  for (std::int64_t i = 0, q = 0; i < count; ++i) {  // of similar size
    const std::int64_t next = (i + 1) * t.width / count;
    tiles[static_cast<std::size_t>(next - q - 1)](t, finish, q);
    q = next;
  }
}

}  // namespace

const Code& code() {
  static constexpr Code kCode{kFloats, kTaps, sizeof(Weight), interleave, sums};
  return kCode;
}

}  // namespace athanor::cpu::int8_depthwise::ATH_ISA
