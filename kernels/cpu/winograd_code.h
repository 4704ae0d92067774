// No #pragma once: one source per instruction set includes this. It defines ATH_ISA, the namespace of the
// vectors, and ATH_TARGET, the attribute that lets a function use them.

#include <algorithm>

#include "kernels/cpu/winograd.h"

// Winograd's algorithm along one axis: 4 outputs of a 3-tap filter, whose 6 inputs become values at 6 points,
// for 16 channels at a time; and the transforms of winograd.h made of it.
//
// Lavin and Gray 2016, arXiv:1509.09308, with other points than theirs: 0, +-3/4, +-3/2 and infinity. With 0,
// +-1, +-2 and infinity, whose matrices have larger entries, the largest error was 3 to 5 times larger.

namespace athanor::cpu::winograd::ATH_ISA {
namespace {

using namespace athanor::cpu::ATH_ISA;
static_assert(kFloats == kLanes);

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

/// 16 channels of kSize x kSize pixels; those outside the image are zeros.
template <int kSize, class T>
ATH_TARGET void read_tile(const Images& z, const T* image, std::int64_t top, std::int64_t left, Floats* d) {
  const std::int64_t row = z.w * z.c;
  if (top >= 0 && left >= 0 && top + kSize <= z.h && left + kSize <= z.w) {
    for (int r = 0; r < kSize; ++r)
      for (int s = 0; s < kSize; ++s) d[r * kSize + s] = load(image + (top + r) * row + (left + s) * z.c);
    return;
  }
  for (int r = 0; r < kSize; ++r) {
    for (int s = 0; s < kSize; ++s) {
      const bool inside = top + r >= 0 && top + r < z.h && left + s >= 0 && left + s < z.w;
      d[r * kSize + s] = inside ? load(image + (top + r) * row + (left + s) * z.c) : zero();
    }
  }
}

template <int kSize> ATH_TARGET void axis_to_points(const Floats* d, int step, Floats* points, int to_step) {
  if constexpr (kSize == kIn)
    inputs_at_points(d, step, points, to_step);
  else
    taps_at_points<kSize>(d, step, points, to_step);
}

/// Transforms kSize x kSize values to the points, stored `step` floats apart.
template <int kSize> ATH_TARGET void store_at_points(const Floats* d, float* to, std::int64_t step) {
  Floats half[kIn * kSize], whole[kIn];
  for (int s = 0; s < kSize; ++s) axis_to_points<kSize>(d + s, kSize, half + s, kSize);
  for (int r = 0; r < kIn; ++r) {
    axis_to_points<kSize>(half + r * kSize, 1, whole, 1);
    for (int s = 0; s < kIn; ++s) store(to + (r * kIn + s) * step, whole[s]);
  }
}

template <int kSize, class T>
ATH_TARGET void tiles_to_points(const Images& z, const T* x, const Tiles& tiles, std::int64_t pad_h,
                                std::int64_t pad_w, std::int64_t first, std::int64_t count, const Points& v,
                                std::int64_t first_row) {
  Floats d[kSize * kSize];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [image, top, left] = tiles.at(first + i);
    for (std::int64_t c = 0; c < z.c; c += kLanes) {
      read_tile<kSize>(z, x + image * z.h * z.w * z.c + c, top - pad_h, left - pad_w, d);
      store_at_points<kSize>(d, v.at(c / v.width, 0) + (first_row + i) * v.width + c % v.width, v.step());
    }
  }
}

/// All taps of 16 filters, or of 16 channels of a filter, for 16 steps of the sum: taps[step][tap].
template <class T>
ATH_TARGET void read_filters(const Filters& f, const T* w, std::int64_t depth, std::int64_t column,
                             Floats (*taps)[kTaps * kTaps]) {
  const std::int64_t filter = kTaps * kTaps * f.channels;
  Floats rows[kLanes];
  for (int tap = 0; tap < kTaps * kTaps; ++tap) {
    if (f.backward) {  // both steps and columns in memory order
      const T* const from = w + depth * filter + (kTaps * kTaps - 1 - tap) * f.channels + column;
      for (int i = 0; i < kLanes; ++i) taps[i][tap] = load(from + i * filter);
    } else {
      const T* const from = w + column * filter + tap * f.channels + depth;
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) rows[i] = load(from + i * filter);
      transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) taps[i][tap] = rows[i];
    }
  }
}

template <class T>
ATH_TARGET void panel_to_points(const Filters& f, const T* w, std::int64_t panel, const Points& u) {
  const std::int64_t begin = panel * kWidth, end = std::min(f.columns, begin + kWidth);
  Floats taps[kLanes][kTaps * kTaps];
  for (std::int64_t depth = 0; depth < f.depth; depth += kLanes) {
    for (std::int64_t column = begin; column < end; column += kLanes) {
      read_filters(f, w, depth, column, taps);
      for (int i = 0; i < kLanes; ++i)
        store_at_points<kTaps>(taps[i], u.data + (depth + i) * kWidth + column - begin, u.step());
    }
  }
}

/// kCount x kCount results of row `row` of m, channels [column, column + 16) of its panel.
template <int kCount>
ATH_TARGET void results_of_points(const Points& m, std::int64_t row, std::int64_t column, Floats* y) {
  Floats d[kPoints], half[kCount * kIn];
  for (int p = 0; p < kPoints; ++p) d[p] = load(m.at(0, p) + row * kWidth + column);
  for (int s = 0; s < kIn; ++s) outputs_of_points<kCount>(d + s, kIn, half + s, kIn);
  for (int r = 0; r < kCount; ++r) outputs_of_points<kCount>(half + r * kIn, 1, y + r * kCount, 1);
}

/// Adds rows x columns stored pixels, 16 channels of each, to a row of TileSums. The sums of a row of pixels
/// come first, then those of a tile, so that few roundings follow on each other.
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

template <class T>
ATH_TARGET void write_panel(const Images& z, const Tiles& tiles, std::int64_t first, std::int64_t count,
                            std::int64_t panel, const Points& m, const Finish<T>& finish, T* y) {
  const std::int64_t begin = panel * kWidth, end = std::min(z.c, begin + kWidth);
  Floats sums[kOut * kOut];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [image, top, left] = tiles.at(first + i);
    const std::int64_t rows = std::min<std::int64_t>(kOut, z.h - top),
                       columns = std::min<std::int64_t>(kOut, z.w - left);
    for (std::int64_t c = begin; c < end; c += kLanes) {
      results_of_points<kOut>(m, i, c - begin, sums);
      const Floats bias = finish.bias ? load(finish.bias + c) : zero();
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t s = 0; s < columns; ++s) {
          const std::int64_t at = ((image * z.h + top + r) * z.w + left + s) * z.c + c;
          Floats value = sums[r * kOut + s] + bias;
          if (finish.residual) value += load(finish.residual + at);
          if (finish.relu) value = relu(value);
          store(y + at, value);
        }
      }
      if (finish.channel_sums.data)
        add_to_channel_sums(y + ((image * z.h + top) * z.w + left) * z.c + c, z.w * z.c, z.c, rows, columns,
                            (first + i) % TileSums::kTiles == 0, finish.channel_sums.of(first + i) + c, z.c);
    }
  }
}

template <class T>
ATH_TARGET void write_gradient_rows(std::int64_t channels, std::int64_t first, std::int64_t count,
                                    std::int64_t panel, const Points& m, bool accumulate, T* dw) {
  const std::int64_t begin = panel * kWidth, end = std::min(channels, begin + kWidth);
  Floats sums[kTaps * kTaps];
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t c = begin; c < end; c += kLanes) {
      results_of_points<kTaps>(m, row, c - begin, sums);
      T* const to = dw + (first + row) * kTaps * kTaps * channels + c;
      for (int tap = 0; tap < kTaps * kTaps; ++tap) {
        T* const at = to + tap * channels;
        store(at, accumulate ? load(at) + sums[tap] : sums[tap]);
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
