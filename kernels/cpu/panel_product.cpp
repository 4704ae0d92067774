// Explained in docs/where_time_goes_on_a_cpu.md.
#include "kernels/cpu/panel_product.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "kernels/cpu/vector.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kAhead = 4096;  // floats, as measured on a Zen 5

/// Which lines of w's rows a tile fetches early.
enum class Fetch : std::uint8_t { none, both, first, second };

/// Of a product. A copy: a vector's store may change what a reference refers to, for all that GCC knows, so
/// it would load each size again.
struct Sizes {
  std::int64_t row, next, depth, width;
  bool accumulate;

  explicit Sizes(const PanelProduct& f)
      : row(f.row), next(f.next), depth(f.depth), width(f.width), accumulate(f.accumulate) {}
};

template <int kRows, int kVectors, Fetch kFetch> ATH_AVX512 void multiply_tile(const PanelProduct& f) {
  using namespace avx512;
  const Sizes z(f);
  Floats total[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) total[i][v] = zero();
  const float *x0 = f.x, *x1 = x0 + 4 * z.row, *x2 = x1 + 4 * z.row, *w = f.w;
  for (std::int64_t t = 0; t < z.depth; ++t) {
    Floats b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      b[v] = load(w + v * kLanes);
      if constexpr (kFetch != Fetch::none) {
        if (kFetch == Fetch::both || (kFetch == Fetch::second) == (v == 1))
          __builtin_prefetch(w + kAhead + v * kLanes);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const float* const x = i < 4 ? x0 : i < 8 ? x1 : x2;
      const Floats a = all(x[i % 4 * z.row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) total[i][v] = fused(a, b[v], total[i][v]);
    }
    x0 += z.next, x1 += z.next, x2 += z.next, w += z.width;
  }
  float* out = f.out;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i, out += z.width)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* const to = out + v * kLanes;
      store(to, z.accumulate ? load(to) + total[i][v] : total[i][v]);
    }
}

/// The same for AVX2: 16 columns at a time, so that sums, factors and a broadcast fit in its 16 registers.
template <int kRows, bool kFetch>
ATH_AVX2 void multiply_columns(const PanelProduct& f, const float* x, const float* w, float* out) {
  using namespace avx2;
  static_assert(kRows <= 6);
  const Sizes z(f);
  Floats total[kRows][2];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) total[i][0] = total[i][1] = zero();
  for (std::int64_t t = 0; t < z.depth; ++t) {
    const Floats low = load(w), high = load(w + 8);
    if constexpr (kFetch) __builtin_prefetch(w + kAhead);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const Floats a = all(x[i * z.row]);
      total[i][0] = fused(a, low, total[i][0]);
      total[i][1] = fused(a, high, total[i][1]);
    }
    x += z.next, w += z.width;
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i, out += z.width) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* const to = out + v * 8;
      store(to, z.accumulate ? load(to) + total[i][v] : total[i][v]);
    }
  }
}

void multiply_panel_avx2(const PanelProduct& f, std::int64_t rows, std::int64_t columns) {
  const std::int64_t width = columns > kLanes ? kPanelColumns : kLanes;
  const float* x = f.x;
  float* out = f.out;
  bool fetch = f.fetch_ahead;
  while (rows > 0) {
    const int some = rows > 8 || rows == 6 ? 6 : 4;  // twelve rows are two of six, not three of four
    const auto multiply = some == 6 ? fetch ? multiply_columns<6, true> : multiply_columns<6, false>
                          : fetch ? multiply_columns<4, true>
                                    : multiply_columns<4, false>;
    for (std::int64_t column = 0; column < width; column += kLanes)
      multiply(f, x, f.w + column, out + column);
    fetch = false;  // what the first rows have fetched
    x += some * f.row, out += some * f.width, rows -= some;
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
    f.out += 4 * quads * f.width;
    rows -= 4 * quads;
    fetch = fetch == Fetch::first ? Fetch::second : Fetch::none;
  }
}

}  // namespace athanor::cpu

#endif
