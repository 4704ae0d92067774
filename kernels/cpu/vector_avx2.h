#pragma once

#include <type_traits>

#include <immintrin.h>

#include "kernels/cpu/isa.h"
#include "tensor/half.h"

// Eight floats at a time, for AVX2 (with FMA and F16C): the operations of vector_avx512.h, with the same
// results. Call them only if has_avx2().

namespace athanor::cpu::avx2 {

using Floats = __m256;
inline constexpr int kFloats = 8;

ATH_AVX2 inline Floats zero() {
  return _mm256_setzero_ps();
}
ATH_AVX2 inline Floats all(float value) {
  return _mm256_set1_ps(value);
}
/// a b + c, rounded once.
ATH_AVX2 inline Floats fused(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
/// value where the bits of mask are 1, else 0.
ATH_AVX2 inline Floats masked(Floats mask, Floats value) {
  return _mm256_and_ps(mask, value);
}
/// max(value, 0), but NaN stays NaN.
ATH_AVX2 inline Floats relu(Floats value) {
  return _mm256_andnot_ps(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_LT_OQ), value);
}

template <class T> ATH_AVX2 inline Floats load(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return _mm256_loadu_ps(from);
  } else {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (std::is_same_v<T, Half>) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

/// As in BFloat16(float).
ATH_AVX2 inline __m128i rounded_to_bf16(Floats value) {
  const __m256i raw = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(raw, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(raw, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
  const __m256i quiet = _mm256_or_si256(raw, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  const __m256i bits = _mm256_srli_epi32(
      _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan)),
      16);
  return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}

template <class T> ATH_AVX2 inline void store(T* to, Floats value) {
  if constexpr (std::is_same_v<T, float>) {
    _mm256_storeu_ps(to, value);
  } else if constexpr (std::is_same_v<T, Half>) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), rounded_to_bf16(value));
  }
}

/// Of 8 rows of 8.
ATH_AVX2 inline void transpose(Floats* rows) {
  Floats pairs[8], quads[8];
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

}  // namespace athanor::cpu::avx2
