// No #pragma once: included once per instruction set, with ATH_ISA defined (vector.h).

#include <algorithm>
#include <bit>

#include "kernels/cpu/vector.h"
#include "kernels/cpu/winograd.h"

// Winograd's algorithm along one axis: 4 outputs of a 3-tap filter, whose 6 inputs become values at 6 points,
// for one vector of channels at a time; and the transforms of winograd.h made of it.
//
// Lavin and Gray 2016, arXiv:1509.09308, with other points than theirs: 0, +-3/4, +-3/2 and infinity. With 0,
// +-1, +-2 and infinity, whose matrices have larger entries, the largest error was 3 to 5 times larger.

namespace athanor::cpu::winograd::ATH_ISA {
namespace {

using namespace athanor::cpu::ATH_ISA;
static_assert(kLanes % kFloats == 0);

inline constexpr float kA = 0.75f, kB = 1.5f;  ///< the points are 0, A, -A, B, -B and infinity
inline constexpr float kA2 = kA * kA, kB2 = kB * kB;

/// factor x + y.
ATH_TARGET inline Floats add_scaled(Floats y, float factor, Floats x) {
  return fused(all(factor), x, y);
}

/// Six values of a row of inputs at the six points. Values are `step` apart, so it also handles columns.
ATH_TARGET inline void inputs_at_points(const Floats* d, int step, Floats* points, int point_step) {
  const Floats d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
               d5 = d[5 * step];
  const Floats even_a = add_scaled(d4, -kB2, d2), odd_a = add_scaled(d3, -kB2, d1);
  const Floats even_b = add_scaled(d4, -kA2, d2), odd_b = add_scaled(d3, -kA2, d1);
  points[0] = add_scaled(add_scaled(d4, -(kA2 + kB2), d2), kA2 * kB2, d0);
  points[point_step] = add_scaled(even_a, kA, odd_a);
  points[2 * point_step] = add_scaled(even_a, -kA, odd_a);
  points[3 * point_step] = add_scaled(even_b, kB, odd_b);
  points[4 * point_step] = add_scaled(even_b, -kB, odd_b);
  points[5 * point_step] = add_scaled(add_scaled(d5, -(kA2 + kB2), d3), kA2 * kB2, d1);
}

/// Three taps of a filter, or the four of a row of dy, the filter when weights are the outputs.
template <int kCount>
ATH_TARGET inline void taps_at_points(const Floats* g, int step, Floats* points, int point_step) {
  static_assert(kCount == 3 || kCount == 4);
  constexpr float kPerZero = 1 / (kA2 * kB2), kPerA = 1 / (2 * kA2 * (kA2 - kB2)),
                  kPerB = 1 / (2 * kB2 * (kB2 - kA2));
  const Floats g0 = g[0], g1 = g[step], g2 = g[2 * step], last = g[(kCount - 1) * step];
  const Floats even_a = add_scaled(g0, kA2, g2), even_b = add_scaled(g0, kB2, g2);
  const Floats odd_a = kCount == 3 ? g1 : add_scaled(g1, kA2, last),
               odd_b = kCount == 3 ? g1 : add_scaled(g1, kB2, last);
  points[0] = all(kPerZero) * g0;
  points[point_step] = all(kPerA) * add_scaled(even_a, kA, odd_a);
  points[2 * point_step] = all(kPerA) * add_scaled(even_a, -kA, odd_a);
  points[3 * point_step] = all(kPerB) * add_scaled(even_b, kB, odd_b);
  points[4 * point_step] = all(kPerB) * add_scaled(even_b, -kB, odd_b);
  points[5 * point_step] = last;
}

/// The four outputs of a row, or the three of a filter's gradient, from products at the six points.
template <int kCount>
ATH_TARGET inline void outputs_of_points(const Floats* m, int step, Floats* y, int y_step) {
  static_assert(kCount == 3 || kCount == 4);
  const Floats m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step], infinity = m[5 * step];
  const Floats even_a = m1 + m2, odd_a = m1 - m2, even_b = m3 + m4, odd_b = m3 - m4;
  y[0] = m[0] + (even_a + even_b);
  y[y_step] = add_scaled(all(kA) * odd_a, kB, odd_b);
  y[2 * y_step] = add_scaled(all(kA2) * even_a, kB2, even_b);
  if constexpr (kCount == 3) {
    y[2 * y_step] += infinity;
  } else {
    y[3 * y_step] = add_scaled(add_scaled(infinity, kA2 * kA, odd_a), kB2 * kB, odd_b);
  }
}

/// Vectors of channels of a tile's pixels, of which none is outside of the image.
template <class T> struct Pixels {
  const T* first;
  std::int64_t row, column;  ///< elements to the pixel below and to the next
};
template <class T> ATH_TARGET inline Floats load_pixel(const Pixels<T>& z, int r, int s) {
  return load(z.first + r * z.row + s * z.column);
}

/// The same where some are, which are zeros: instead of them others are read and masked.
template <int kSize, class T> struct BorderPixels {
  const T* rows[kSize];
  std::int64_t columns[kSize];
  Floats in_row[kSize], in_column[kSize];
};
template <int kSize, class T>
ATH_TARGET inline Floats load_pixel(const BorderPixels<kSize, T>& z, int r, int s) {
  return masked(z.in_row[r], masked(z.in_column[s], load(z.rows[r] + z.columns[s])));
}
template <int kSize, class T>
ATH_TARGET BorderPixels<kSize, T> border_pixels(const Images& z, const T* image, std::int64_t top,
                                                std::int64_t left) {
  BorderPixels<kSize, T> to;
  const Floats all_bits = all(std::bit_cast<float>(~std::uint32_t{0}));
  for (int i = 0; i < kSize; ++i) {
    const std::int64_t y = std::clamp<std::int64_t>(top + i, 0, z.h - 1),
                       x = std::clamp<std::int64_t>(left + i, 0, z.w - 1);
    to.rows[i] = image + y * z.w * z.c;
    to.columns[i] = x * z.c;
    to.in_row[i] = y == top + i ? all_bits : zero();
    to.in_column[i] = x == left + i ? all_bits : zero();
  }
  return to;
}

template <int kSize> ATH_TARGET void axis_to_points(const Floats* d, int step, Floats* points, int to_step) {
  if constexpr (kSize == kIn)
    inputs_at_points(d, step, points, to_step);
  else
    taps_at_points<kSize>(d, step, points, to_step);
}

/// Transforms kSize x kSize pixels to the points, stored `step` floats apart. A function by itself, as GCC
/// uses registers better in it.
template <int kSize, class Source>
ATH_TARGET [[gnu::noinline]] void store_at_points(const Source& pixels, float* to, std::int64_t step) {
  Floats half[kIn * kSize], whole[kIn];
  for (int s = 0; s < kSize; ++s) {
    Floats d[kSize];
    for (int r = 0; r < kSize; ++r) d[r] = load_pixel(pixels, r, s);
    axis_to_points<kSize>(d, 1, half + s, kSize);
  }
  for (int r = 0; r < kIn; ++r) {
    axis_to_points<kSize>(half + r * kSize, 1, whole, 1);
    for (int s = 0; s < kIn; ++s) store(to + (r * kIn + s) * step, whole[s]);
  }
}

/// All channels of a tile, as row `row` of v.
template <int kSize, class T>
ATH_TARGET void tile_to_points(const Images& z, const T* image, std::int64_t top, std::int64_t left,
                               const Points& v, std::int64_t row) {
  // Copies: for all that GCC knows, a vector's store may change what a reference refers to.
  const std::int64_t channels = z.c, width = v.width, step = v.step();
  float* to = v.data + row * width;
  float* end = to + width;  // of the panel's row
  const auto advance = [&] {
    if ((to += kFloats) == end) to += kPoints * step - width, end = to + width;
  };
  if (top >= 0 && left >= 0 && top + kSize <= z.h && left + kSize <= z.w) {
    Pixels<T> pixels{image + (top * z.w + left) * channels, z.w * channels, channels};
    for (std::int64_t c = 0; c < channels; c += kFloats, pixels.first += kFloats, advance())
      store_at_points<kSize>(pixels, to, step);
    return;
  }
  auto pixels = border_pixels<kSize>(z, image, top, left);
  for (std::int64_t c = 0; c < channels; c += kFloats, advance()) {
    store_at_points<kSize>(pixels, to, step);
    for (const T*& from : pixels.rows) from += kFloats;
  }
}

template <int kSize, class T>
ATH_TARGET void tiles_to_points(const Images& z, const T* x, const Tiles& tiles, std::int64_t pad_h,
                                std::int64_t pad_w, std::int64_t first, std::int64_t count, const Points& v,
                                std::int64_t first_row) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [image, top, left] = tiles.at(first + i);
    tile_to_points<kSize>(z, x + image * z.h * z.w * z.c, top - pad_h, left - pad_w, v, first_row + i);
  }
}

/// All taps of a vector of filters, or of channels of a filter, for as many steps of the sum:
/// taps[step][tap].
template <class T>
ATH_TARGET void read_filters(const Filters& f, const T* w, std::int64_t depth, std::int64_t column,
                             Floats (*taps)[kTaps * kTaps]) {
  const std::int64_t filter = kTaps * kTaps * f.channels;
  Floats rows[kFloats];
  for (int tap = 0; tap < kTaps * kTaps; ++tap) {
    if (f.backward) {  // both steps and columns in memory order
      const T* const from = w + depth * filter + (kTaps * kTaps - 1 - tap) * f.channels + column;
      for (int i = 0; i < kFloats; ++i) taps[i][tap] = load(from + i * filter);
    } else {
      const T* const from = w + column * filter + tap * f.channels + depth;
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) rows[i] = load(from + i * filter);
      transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) taps[i][tap] = rows[i];
    }
  }
}

template <class T>
ATH_TARGET void panel_to_points(const Filters& f, const T* w, std::int64_t panel, const Points& u) {
  const std::int64_t begin = panel * kWidth, end = std::min(f.columns, begin + kWidth);
  Floats taps[kFloats][kTaps * kTaps];
  for (std::int64_t depth = 0; depth < f.depth; depth += kFloats) {
    for (std::int64_t column = begin; column < end; column += kFloats) {
      read_filters(f, w, depth, column, taps);
      for (int i = 0; i < kFloats; ++i) {
        const Pixels<float> filter{reinterpret_cast<const float*>(taps[i]), kTaps * kFloats, kFloats};
        store_at_points<kTaps>(filter, u.data + (depth + i) * u.width + column - begin, u.step());
      }
    }
  }
}

/// The first half of the transform of products `step` floats apart: half [kCount][6].
template <int kCount> ATH_TARGET inline void half_of_points(const float* m, std::int64_t step, Floats* half) {
#pragma GCC unroll 6
  for (int s = 0; s < kIn; ++s) {
    Floats d[kIn];
#pragma GCC unroll 6
    for (int r = 0; r < kIn; ++r) d[r] = load(m + (r * kIn + s) * step);
    outputs_of_points<kCount>(d, 1, half + s, kIn);
  }
}

/// Adds rows x columns stored pixels, a vector of channels of each, to a row of TileSums. The sums of a row
/// of pixels come first, then those of a tile, so that few roundings follow on each other.
template <class T>
ATH_TARGET void add_to_channel_sums(const T* y, std::int64_t row, std::int64_t column, std::int64_t rows,
                                    std::int64_t columns, bool first, float* to, std::int64_t channels) {
  if (first) {  // their mean
    Floats sum = zero();
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t s = 0; s < columns; ++s) sum += load(y + r * row + s * column);
    store(to, all(1 / static_cast<float>(rows * columns)) * sum);
    store(to + channels, zero());
    store(to + 2 * channels, zero());
  }
  const Floats shift = load(to);
  Floats sum = zero(), squares = zero();
  for (std::int64_t r = 0; r < rows; ++r) {
    Floats row_sum = zero(), row_squares = zero();
    for (std::int64_t s = 0; s < columns; ++s) {
      const Floats apart = load(y + r * row + s * column) - shift;
      row_sum += apart;
      row_squares = fused(apart, apart, row_squares);
    }
    sum += row_sum;
    squares += row_squares;
  }
  store(to + channels, load(to + channels) + sum);
  store(to + 2 * channels, load(to + 2 * channels) + squares);
}

/// A vector of channels of rows x columns pixels of y, from products `step` floats apart.
template <class T> struct OutputTile {
  T* y;
  const T* residual;         ///< or null
  std::int64_t row, column;  ///< elements to the pixel below and to the next
  std::int64_t rows, columns;
};
template <bool kWhole, class T>
ATH_TARGET inline void write_tile(const float* m, std::int64_t step, Floats bias, bool with_relu,
                                  OutputTile<T> to) {
  Floats half[kOut * kIn], values[kOut];
  half_of_points<kOut>(m, step, half);
#pragma GCC unroll 4
  for (int r = 0; r < (kWhole ? kOut : to.rows); ++r) {
    outputs_of_points<kOut>(half + r * kIn, 1, values, 1);
#pragma GCC unroll 4
    for (int s = 0; s < (kWhole ? kOut : to.columns); ++s) {
      const std::int64_t at = r * to.row + s * to.column;
      Floats value = values[s] + bias;
      if (to.residual) value += load(to.residual + at);
      if (with_relu) value = relu(value);
      store(to.y + at, value);
    }
  }
}

template <class T>
ATH_TARGET void write_panel(const Images& z, const Tiles& tiles, std::int64_t first, std::int64_t count,
                            std::int64_t panel, const Points& m, const Finish<T>& finish, T* y) {
  const std::int64_t begin = panel * kWidth, end = std::min(z.c, begin + kWidth), step = m.step();
  const bool with_relu = finish.relu;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [image, top, left] = tiles.at(first + i);
    OutputTile<T> to{nullptr,
                     nullptr,
                     z.w * z.c,
                     z.c,
                     std::min<std::int64_t>(kOut, z.h - top),
                     std::min<std::int64_t>(kOut, z.w - left)};
    const std::int64_t corner = ((image * z.h + top) * z.w + left) * z.c;
    const bool whole = to.rows == kOut && to.columns == kOut;
    for (std::int64_t c = begin; c < end; c += kFloats) {
      to.y = y + corner + c;
      to.residual = finish.residual ? finish.residual + corner + c : nullptr;
      const float* const products = m.data + i * m.width + c - begin;
      const Floats bias = finish.bias ? load(finish.bias + c) : zero();
      if (whole)
        write_tile<true>(products, step, bias, with_relu, to);
      else
        write_tile<false>(products, step, bias, with_relu, to);
      if (finish.channel_sums.data)
        add_to_channel_sums(to.y, to.row, to.column, to.rows, to.columns, (first + i) % TileSums::kTiles == 0,
                            finish.channel_sums.of(first + i) + c, z.c);
    }
  }
}

template <class T>
ATH_TARGET void write_gradient_rows(std::int64_t channels, std::int64_t first, std::int64_t count,
                                    std::int64_t panel, const Points& m, bool accumulate, T* dw) {
  const std::int64_t begin = panel * kWidth, end = std::min(channels, begin + kWidth);
  Floats half[kTaps * kIn], values[kTaps];
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t c = begin; c < end; c += kFloats) {
      half_of_points<kTaps>(m.data + row * m.width + c - begin, m.step(), half);
      T* at = dw + (first + row) * kTaps * kTaps * channels + c;
      for (int r = 0; r < kTaps; ++r) {
        outputs_of_points<kTaps>(half + r * kIn, 1, values, 1);
        for (int s = 0; s < kTaps; ++s, at += channels)
          store(at, accumulate ? load(at) + values[s] : values[s]);
      }
    }
  }
}

template <class T>
void inputs_to_points(const Images& z, const T* x, const Tiles& tiles, std::int64_t pad_h, std::int64_t pad_w,
                      std::int64_t first, std::int64_t count, const Points& v, std::int64_t first_row) {
  tiles_to_points<kIn>(z, x, tiles, pad_h, pad_w, first, count, v, first_row);
}
template <class T>
void gradients_to_points(const Images& z, const T* dy, const Tiles& tiles, std::int64_t first,
                         std::int64_t count, const Points& v, std::int64_t first_row) {
  tiles_to_points<kOut>(z, dy, tiles, 0, 0, first, count, v, first_row);
}

}  // namespace

template <class T> const Transforms<T>& transforms() {
  static constexpr Transforms<T> kAll{inputs_to_points<T>, gradients_to_points<T>, panel_to_points<T>,
                                      write_panel<T>, write_gradient_rows<T>};
  return kAll;
}
template const Transforms<float>& transforms();
template const Transforms<Half>& transforms();
template const Transforms<BFloat16>& transforms();

}  // namespace athanor::cpu::winograd::ATH_ISA
