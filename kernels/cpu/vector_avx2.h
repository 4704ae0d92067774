#pragma once

#include <type_traits>

#include <immintrin.h>

#include "kernels/cpu/isa.h"
#include "tensor/half.h"

// Sixteen floats at a time, for AVX2 (with FMA and F16C): two vectors of eight. The operations of
// vector_avx512.h, with the same results. Call them only if has_avx2().

namespace athanor::cpu::avx2 {

struct Floats {
  __m256 low, high;
};
inline constexpr int kFloats = 16;

ATH_AVX2 inline Floats operator+(Floats a, Floats b) {
  return {a.low + b.low, a.high + b.high};
}
ATH_AVX2 inline Floats operator-(Floats a, Floats b) {
  return {a.low - b.low, a.high - b.high};
}
ATH_AVX2 inline Floats operator*(Floats a, Floats b) {
  return {a.low * b.low, a.high * b.high};
}
ATH_AVX2 inline Floats& operator+=(Floats& a, Floats b) {
  return a = a + b;
}

ATH_AVX2 inline Floats zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
ATH_AVX2 inline Floats all(float value) {
  return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
/// a b + c, rounded once.
ATH_AVX2 inline Floats fused(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

namespace detail {
ATH_AVX2 inline __m256 relu(__m256 value) {
  return _mm256_andnot_ps(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_LT_OQ), value);
}
ATH_AVX2 inline __m256 from_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
/// As in BFloat16(float), in the upper half of each number.
ATH_AVX2 inline __m256i rounded_to_bf16(__m256 value) {
  const __m256i raw = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(raw, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(raw, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
  const __m256i quiet = _mm256_or_si256(raw, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
}
}  // namespace detail

/// max(value, 0), but NaN stays NaN.
ATH_AVX2 inline Floats relu(Floats value) {
  return {detail::relu(value.low), detail::relu(value.high)};
}

template <class T> ATH_AVX2 inline Floats load(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
  } else {
    const auto* const halves = reinterpret_cast<const __m128i*>(from);
    const __m128i low = _mm_loadu_si128(halves), high = _mm_loadu_si128(halves + 1);
    if constexpr (std::is_same_v<T, Half>) return {_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
    return {detail::from_bf16(low), detail::from_bf16(high)};
  }
}

template <class T> ATH_AVX2 inline void store(T* to, Floats value) {
  if constexpr (std::is_same_v<T, float>) {
    _mm256_storeu_ps(to, value.low);
    _mm256_storeu_ps(to + 8, value.high);
  } else if constexpr (std::is_same_v<T, Half>) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value.low, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + 1, _mm256_cvtps_ph(value.high, kNearest));
  } else {
    const __m256i low = _mm256_srli_epi32(detail::rounded_to_bf16(value.low), 16),
                  high = _mm256_srli_epi32(detail::rounded_to_bf16(value.high), 16);
    // Each half of 128 bits is packed for itself.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0b11011000);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
  }
}

namespace detail {
/// Of 8 rows of 8.
ATH_AVX2 inline void transpose(__m256* rows) {
  __m256 pairs[8], quads[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}
}  // namespace detail

/// Of 16 rows of 16: the four quarters, of which two change places.
ATH_AVX2 inline void transpose(Floats* rows) {
  __m256 quarters[4][8];
  for (int i = 0; i < 8; ++i) {
    quarters[0][i] = rows[i].low, quarters[1][i] = rows[i + 8].low;
    quarters[2][i] = rows[i].high, quarters[3][i] = rows[i + 8].high;
  }
  for (auto& quarter : quarters) detail::transpose(quarter);
  for (int i = 0; i < 8; ++i) {
    rows[i] = {quarters[0][i], quarters[1][i]};
    rows[i + 8] = {quarters[2][i], quarters[3][i]};
  }
}

}  // namespace athanor::cpu::avx2
