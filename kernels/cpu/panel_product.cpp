#include "kernels/cpu/panel_product.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include "kernels/cpu/isa.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kAhead = 4096;  // floats, as measured on a Zen 5

/// Which lines of w's rows a tile fetches early.
enum class Fetch : std::uint8_t { none, both, first, second };

template <int kRows, int kVectors, Fetch kFetch> ATH_AVX512 void multiply_tile(const PanelProduct& f) {
  __m512 total[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) total[i][v] = _mm512_setzero_ps();
  const std::int64_t row = f.row;
  const float *x0 = f.x, *x1 = x0 + 4 * row, *x2 = x1 + 4 * row, *w = f.w;
  for (std::int64_t t = 0; t < f.depth; ++t) {
    __m512 b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      b[v] = _mm512_loadu_ps(w + v * kLanes);
      if constexpr (kFetch != Fetch::none) {
        if (kFetch == Fetch::both || (kFetch == Fetch::second) == (v == 1))
          __builtin_prefetch(w + kAhead + v * kLanes);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const float* const x = i < 4 ? x0 : i < 8 ? x1 : x2;
      const __m512 a = _mm512_set1_ps(x[i % 4 * row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) total[i][v] = _mm512_fmadd_ps(a, b[v], total[i][v]);
    }
    x0 += f.next, x1 += f.next, x2 += f.next, w += kPanelColumns;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* const out = f.out + i * kPanelColumns + v * kLanes;
      _mm512_storeu_ps(out, f.accumulate ? _mm512_loadu_ps(out) + total[i][v] : total[i][v]);
    }
}

/// The same for AVX2: 16 columns at a time, so that sums, factors and a broadcast fit in its 16 registers.
template <int kRows> ATH_AVX2 void multiply_columns(const PanelProduct& f) {
  static_assert(kRows <= 6);
  __m256 total[kRows][2];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) total[i][0] = total[i][1] = _mm256_setzero_ps();
  const float *x = f.x, *w = f.w;
  for (std::int64_t t = 0; t < f.depth; ++t) {
    const __m256 low = _mm256_loadu_ps(w), high = _mm256_loadu_ps(w + 8);
    if (f.fetch_ahead) __builtin_prefetch(w + kAhead);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 a = _mm256_set1_ps(x[i * f.row]);
      total[i][0] = _mm256_fmadd_ps(a, low, total[i][0]);
      total[i][1] = _mm256_fmadd_ps(a, high, total[i][1]);
    }
    x += f.next, w += kPanelColumns;
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* const out = f.out + i * kPanelColumns + v * 8;
      _mm256_storeu_ps(out, f.accumulate ? _mm256_loadu_ps(out) + total[i][v] : total[i][v]);
    }
  }
}

void multiply_panel_avx2(PanelProduct f, std::int64_t rows, std::int64_t columns) {
  const float* const w = f.w;
  float* const out = f.out;
  const std::int64_t width = columns > kLanes ? kPanelColumns : kLanes;
  for (std::int64_t row = 0; row < rows;) {
    const bool six = rows - row > 8 || rows - row == 6;  // twelve rows are two of six, not three of four
    for (std::int64_t column = 0; column < width; column += kLanes) {
      f.w = w + column, f.out = out + row * kPanelColumns + column;
      if (six)
        multiply_columns<6>(f);
      else
        multiply_columns<4>(f);
    }
    f.fetch_ahead = false;  // what the first rows have fetched
    f.x += (six ? 6 : 4) * f.row, row += six ? 6 : 4;
  }
}

template <Fetch kFetch>
constexpr void (*kTiles[3][2])(const PanelProduct&) = {
    {multiply_tile<4, 1, kFetch>, multiply_tile<4, 2, kFetch>},
    {multiply_tile<8, 1, kFetch>, multiply_tile<8, 2, kFetch>},
    {multiply_tile<12, 1, kFetch>, multiply_tile<12, 2, kFetch>}};

}  // namespace

void multiply_panel(PanelProduct f, std::int64_t rows, std::int64_t columns) {
  if (!has_avx512()) return multiply_panel_avx2(f, (rows + 3) / 4 * 4, columns);
  // Two tiles share the work, so that memory is busy throughout.
  Fetch fetch = !f.fetch_ahead ? Fetch::none : rows > 12 && columns > kLanes ? Fetch::first : Fetch::both;
  while (rows > 0) {
    const bool twelve = rows >= 24 || (rows > 8 && rows <= 12);
    const int quads = twelve ? 3 : rows > 4 ? 2 : 1;
    const auto& tiles = fetch == Fetch::none    ? kTiles<Fetch::none>
                        : fetch == Fetch::both  ? kTiles<Fetch::both>
                        : fetch == Fetch::first ? kTiles<Fetch::first>
                                                : kTiles<Fetch::second>;
    tiles[quads - 1][columns > kLanes](f);
    f.x += 4 * quads * f.row;
    f.out += 4 * quads * kPanelColumns;
    rows -= 4 * quads;
    fetch = fetch == Fetch::first ? Fetch::second : Fetch::none;
  }
}

}  // namespace athanor::cpu

#endif
