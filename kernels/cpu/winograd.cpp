#include "kernels/cpu/winograd.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/cpu/winograd_points.h"
#include "tensor/half.h"

namespace athanor::cpu::winograd {
namespace {

constexpr __mmask16 kAll = 0xffff;  // without a mask, GCC 12 warns about its own headers

template <class T> ATH_AVX512 __m512 load(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return _mm512_loadu_ps(from);
  } else {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (std::is_same_v<T, Half>) return _mm512_maskz_cvtph_ps(kAll, bits);
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
  }
}

/// As in BFloat16(float).
ATH_AVX512 __m256i rounded_to_bf16(__m512 value) {
  const __m512i raw = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_epi32(_mm512_maskz_srli_epi32(kAll, raw, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i bits =
      _mm512_mask_or_epi32(_mm512_add_epi32(raw, half), nan, raw, _mm512_set1_epi32(0x400000));
  return _mm512_maskz_cvtepi32_epi16(kAll, _mm512_maskz_srli_epi32(kAll, bits, 16));
}

template <class T> ATH_AVX512 void store(T* to, __m512 value) {
  if constexpr (std::is_same_v<T, float>) {
    _mm512_storeu_ps(to, value);
  } else if constexpr (std::is_same_v<T, Half>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtps_ph(kAll, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded_to_bf16(value));
  }
}

/// 16 channels of kSize x kSize pixels; those outside the image are zeros.
template <int kSize, class T>
ATH_AVX512 void read_tile(const Images& z, const T* image, std::int64_t top, std::int64_t left, __m512* d) {
  const std::int64_t row = z.w * z.c;
  if (top >= 0 && left >= 0 && top + kSize <= z.h && left + kSize <= z.w) {
    for (int r = 0; r < kSize; ++r)
      for (int s = 0; s < kSize; ++s) d[r * kSize + s] = load(image + (top + r) * row + (left + s) * z.c);
    return;
  }
  for (int r = 0; r < kSize; ++r) {
    for (int s = 0; s < kSize; ++s) {
      const bool inside = top + r >= 0 && top + r < z.h && left + s >= 0 && left + s < z.w;
      d[r * kSize + s] = inside ? load(image + (top + r) * row + (left + s) * z.c) : _mm512_setzero_ps();
    }
  }
}

template <int kSize> ATH_AVX512 void axis_to_points(const __m512* d, int step, __m512* points, int to_step) {
  if constexpr (kSize == kIn)
    inputs_at_points(d, step, points, to_step);
  else
    taps_at_points<kSize>(d, step, points, to_step);
}

/// Transforms kSize x kSize values to the points, stored `step` floats apart.
template <int kSize> ATH_AVX512 void store_at_points(const __m512* d, float* to, std::int64_t step) {
  __m512 half[kIn * kSize], whole[kIn];
  for (int s = 0; s < kSize; ++s) axis_to_points<kSize>(d + s, kSize, half + s, kSize);
  for (int r = 0; r < kIn; ++r) {
    axis_to_points<kSize>(half + r * kSize, 1, whole, 1);
    for (int s = 0; s < kIn; ++s) _mm512_storeu_ps(to + (r * kIn + s) * step, whole[s]);
  }
}

template <int kSize, class T>
ATH_AVX512 void tiles_to_points(const Images& z, const T* x, const Tiles& tiles, std::int64_t pad_h,
                                std::int64_t pad_w, std::int64_t first, std::int64_t count, const Points& v,
                                std::int64_t first_row) {
  __m512 d[kSize * kSize];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [image, top, left] = tiles.at(first + i);
    for (std::int64_t c = 0; c < z.c; c += kLanes) {
      read_tile<kSize>(z, x + image * z.h * z.w * z.c + c, top - pad_h, left - pad_w, d);
      store_at_points<kSize>(d, v.at(c / v.width, 0) + (first_row + i) * v.width + c % v.width, v.step());
    }
  }
}

/// The permutation that pairs the values of two rows which exchange lanes with bit `kBit`, or those without
/// it.
template <int kBit, bool kHigh> ATH_AVX512 __m512i exchange() {
  static constexpr auto kLanesOf = [] {
    std::array<int, kLanes> from{};
    for (int lane = 0; lane < kLanes; ++lane) {
      const bool second = (lane & kBit) != 0;
      from[lane] = (second ? kLanes : 0) + (kHigh ? lane | kBit : lane & ~kBit);
    }
    return from;
  }();
  return _mm512_loadu_si512(kLanesOf.data());
}
template <int kBit> ATH_AVX512 void exchange_rows(__m512* rows) {
  const __m512i low = exchange<kBit, false>(), high = exchange<kBit, true>();
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & kBit) continue;
    const __m512 a = rows[i], b = rows[i + kBit];
    rows[i] = _mm512_permutex2var_ps(a, low, b);
    rows[i + kBit] = _mm512_permutex2var_ps(a, high, b);
  }
}
ATH_AVX512 void transpose(__m512* rows) {
  exchange_rows<1>(rows);
  exchange_rows<2>(rows);
  exchange_rows<4>(rows);
  exchange_rows<8>(rows);
}

/// All taps of 16 filters, or of 16 channels of a filter, for 16 steps of the sum: taps[step][tap].
template <class T>
ATH_AVX512 void read_filters(const Filters& f, const T* w, std::int64_t depth, std::int64_t column,
                             __m512 (*taps)[kTaps * kTaps]) {
  const std::int64_t filter = kTaps * kTaps * f.channels;
  __m512 rows[kLanes];
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
ATH_AVX512 void panel_to_points(const Filters& f, const T* w, std::int64_t panel, const Points& u) {
  const std::int64_t begin = panel * kWidth, end = std::min(f.columns, begin + kWidth);
  __m512 taps[kLanes][kTaps * kTaps];
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
ATH_AVX512 void results_of_points(const Points& m, std::int64_t row, std::int64_t column, __m512* y) {
  __m512 d[kPoints], half[kCount * kIn];
  for (int p = 0; p < kPoints; ++p) d[p] = _mm512_loadu_ps(m.at(0, p) + row * kWidth + column);
  for (int s = 0; s < kIn; ++s) outputs_of_points<kCount>(d + s, kIn, half + s, kIn);
  for (int r = 0; r < kCount; ++r) outputs_of_points<kCount>(half + r * kIn, 1, y + r * kCount, 1);
}

template <class T>
ATH_AVX512 void write_panel(const Images& z, const Tiles& tiles, std::int64_t first, std::int64_t count,
                            std::int64_t panel, const Points& m, const Finish<T>& finish, T* y) {
  const std::int64_t begin = panel * kWidth, end = std::min(z.c, begin + kWidth);
  __m512 sums[kOut * kOut];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [image, top, left] = tiles.at(first + i);
    const std::int64_t rows = std::min<std::int64_t>(kOut, z.h - top),
                       columns = std::min<std::int64_t>(kOut, z.w - left);
    for (std::int64_t c = begin; c < end; c += kLanes) {
      results_of_points<kOut>(m, i, c - begin, sums);
      const __m512 bias = finish.bias ? load(finish.bias + c) : _mm512_setzero_ps();
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t s = 0; s < columns; ++s) {
          const std::int64_t at = ((image * z.h + top + r) * z.w + left + s) * z.c + c;
          __m512 value = sums[r * kOut + s] + bias;
          if (finish.residual) value += load(finish.residual + at);
          if (finish.relu) {
            const __mmask16 below = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_LT_OQ);
            value = _mm512_mask_mov_ps(value, below, _mm512_setzero_ps());
          }
          store(y + at, value);
        }
      }
    }
  }
}

template <class T>
ATH_AVX512 void write_gradient_rows(std::int64_t channels, std::int64_t first, std::int64_t count,
                                    std::int64_t panel, const Points& m, bool accumulate, T* dw) {
  const std::int64_t begin = panel * kWidth, end = std::min(channels, begin + kWidth);
  __m512 sums[kTaps * kTaps];
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

}  // namespace

// Wrappers callable from code for any CPU.

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
template <class T>
void filters_to_points(const Filters& filters, const T* w, std::int64_t panel, const Points& u) {
  panel_to_points(filters, w, panel, u);
}
template <class T>
void write_outputs(const Images& z, const Tiles& tiles, std::int64_t first, std::int64_t count,
                   std::int64_t panel, const Points& m, const Finish<T>& finish, T* y) {
  write_panel(z, tiles, first, count, panel, m, finish, y);
}
template <class T>
void write_gradient(std::int64_t channels, std::int64_t first, std::int64_t count, std::int64_t panel,
                    const Points& m, bool accumulate, T* dw) {
  write_gradient_rows(channels, first, count, panel, m, accumulate, dw);
}

#define ATH_INSTANTIATE(T)                                                                                  \
  template void inputs_to_points(const Images&, const T*, const Tiles&, std::int64_t, std::int64_t,         \
                                 std::int64_t, std::int64_t, const Points&, std::int64_t);                  \
  template void gradients_to_points(const Images&, const T*, const Tiles&, std::int64_t, std::int64_t,      \
                                    const Points&, std::int64_t);                                           \
  template void filters_to_points(const Filters&, const T*, std::int64_t, const Points&);                   \
  template void write_outputs(const Images&, const Tiles&, std::int64_t, std::int64_t, std::int64_t,        \
                              const Points&, const Finish<T>&, T*);                                         \
  template void write_gradient(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const Points&, bool, \
                               T*);
ATH_INSTANTIATE(float)
ATH_INSTANTIATE(Half)
ATH_INSTANTIATE(BFloat16)
#undef ATH_INSTANTIATE

}  // namespace athanor::cpu::winograd

#endif
