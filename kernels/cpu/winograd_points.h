#pragma once

#include <immintrin.h>

#include "kernels/cpu/isa.h"

// The arithmetic of Winograd's algorithm along one axis: 4 outputs of a 3-tap filter, whose 6 inputs become
// values at 6 points, for 16 channels at a time. Only if has_avx512().
//
// Lavin and Gray 2016, arXiv:1509.09308, with other points than theirs: 0, +-3/4, +-3/2 and infinity. With 0,
// +-1, +-2 and infinity, whose matrices have larger entries, the largest error was 3 to 5 times larger.

namespace athanor::cpu::winograd {

inline constexpr float kA = 0.75f, kB = 1.5f;  ///< the points are 0, A, -A, B, -B and infinity
inline constexpr float kA2 = kA * kA, kB2 = kB * kB;

ATH_AVX512 inline __m512 all(float value) {
  return _mm512_set1_ps(value);
}
/// factor x + y.
ATH_AVX512 inline __m512 add_scaled(__m512 y, float factor, __m512 x) {
  return _mm512_fmadd_ps(all(factor), x, y);
}

/// Six values of a row of inputs at the six points. Values are `step` apart, so it also handles columns.
ATH_AVX512 inline void inputs_at_points(const __m512* d, int step, __m512* points, int point_step) {
  const __m512 d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
               d5 = d[5 * step];
  const __m512 even_a = add_scaled(d4, -kB2, d2), odd_a = add_scaled(d3, -kB2, d1);
  const __m512 even_b = add_scaled(d4, -kA2, d2), odd_b = add_scaled(d3, -kA2, d1);
  points[0] = add_scaled(add_scaled(d4, -(kA2 + kB2), d2), kA2 * kB2, d0);
  points[point_step] = add_scaled(even_a, kA, odd_a);
  points[2 * point_step] = add_scaled(even_a, -kA, odd_a);
  points[3 * point_step] = add_scaled(even_b, kB, odd_b);
  points[4 * point_step] = add_scaled(even_b, -kB, odd_b);
  points[5 * point_step] = add_scaled(add_scaled(d5, -(kA2 + kB2), d3), kA2 * kB2, d1);
}

/// Three taps of a filter, or the four of a row of dy, the filter when weights are the outputs.
template <int kCount>
ATH_AVX512 inline void taps_at_points(const __m512* g, int step, __m512* points, int point_step) {
  static_assert(kCount == 3 || kCount == 4);
  constexpr float kPerZero = 1 / (kA2 * kB2), kPerA = 1 / (2 * kA2 * (kA2 - kB2)),
                  kPerB = 1 / (2 * kB2 * (kB2 - kA2));
  const __m512 g0 = g[0], g1 = g[step], g2 = g[2 * step], last = g[(kCount - 1) * step];
  const __m512 even_a = add_scaled(g0, kA2, g2), even_b = add_scaled(g0, kB2, g2);
  const __m512 odd_a = kCount == 3 ? g1 : add_scaled(g1, kA2, last),
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
ATH_AVX512 inline void outputs_of_points(const __m512* m, int step, __m512* y, int y_step) {
  static_assert(kCount == 3 || kCount == 4);
  const __m512 m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step], infinity = m[5 * step];
  const __m512 even_a = m1 + m2, odd_a = m1 - m2, even_b = m3 + m4, odd_b = m3 - m4;
  y[0] = m[0] + (even_a + even_b);
  y[y_step] = add_scaled(all(kA) * odd_a, kB, odd_b);
  y[2 * y_step] = add_scaled(all(kA2) * even_a, kB2, even_b);
  if constexpr (kCount == 3) {
    y[2 * y_step] += infinity;
  } else {
    y[3 * y_step] = add_scaled(add_scaled(infinity, kA2 * kA, odd_a), kB2 * kB, odd_b);
  }
}

}  // namespace athanor::cpu::winograd
