#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#include "kernels/cpu/isa.h"
#include "tensor/half.h"

// Sixteen floats at a time, for AVX-512: the operations that code for several instruction sets is written in
// (winograd_code.h). vector_avx2.h has the same for AVX2. Call them only if has_avx512().

namespace athanor::cpu::avx512 {

using Floats = __m512;
inline constexpr int kFloats = 16;
inline constexpr __mmask16 kAll = 0xffff;  // without a mask, GCC 12 warns about its own headers

ATH_AVX512 inline Floats zero() {
  return _mm512_setzero_ps();
}
ATH_AVX512 inline Floats all(float value) {
  return _mm512_set1_ps(value);
}
/// a b + c, rounded once.
ATH_AVX512 inline Floats fused(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
/// value where the bits of mask are 1, else 0.
ATH_AVX512 inline Floats masked(Floats mask, Floats value) {
  return _mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(mask), _mm512_castps_si512(value)));
}
/// max(value, 0), but NaN stays NaN.
ATH_AVX512 inline Floats relu(Floats value) {
  const __mmask16 below = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(value, below, _mm512_setzero_ps());
}

template <class T> ATH_AVX512 inline Floats load(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return _mm512_loadu_ps(from);
  } else {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (std::is_same_v<T, Half>) return _mm512_maskz_cvtph_ps(kAll, bits);
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
  }
}

/// As in BFloat16(float).
ATH_AVX512 inline __m256i rounded_to_bf16(Floats value) {
  const __m512i raw = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_epi32(_mm512_maskz_srli_epi32(kAll, raw, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i bits =
      _mm512_mask_or_epi32(_mm512_add_epi32(raw, half), nan, raw, _mm512_set1_epi32(0x400000));
  return _mm512_maskz_cvtepi32_epi16(kAll, _mm512_maskz_srli_epi32(kAll, bits, 16));
}

template <class T> ATH_AVX512 inline void store(T* to, Floats value) {
  if constexpr (std::is_same_v<T, float>) {
    _mm512_storeu_ps(to, value);
  } else if constexpr (std::is_same_v<T, Half>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtps_ph(kAll, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded_to_bf16(value));
  }
}

namespace detail {

/// The permutation that pairs the values of two rows which exchange lanes with bit `kBit`, or those without
/// it.
template <int kBit, bool kHigh> ATH_AVX512 inline __m512i exchange() {
  static constexpr auto kLanesOf = [] {
    std::array<int, kFloats> from{};
    for (int lane = 0; lane < kFloats; ++lane) {
      const bool second = (lane & kBit) != 0;
      from[lane] = (second ? kFloats : 0) + (kHigh ? lane | kBit : lane & ~kBit);
    }
    return from;
  }();
  return _mm512_loadu_si512(kLanesOf.data());
}
template <int kBit> ATH_AVX512 inline void exchange_rows(Floats* rows) {
  const __m512i low = exchange<kBit, false>(), high = exchange<kBit, true>();
#pragma GCC unroll 16
  for (int i = 0; i < kFloats; ++i) {
    if (i & kBit) continue;
    const Floats a = rows[i], b = rows[i + kBit];
    rows[i] = _mm512_permutex2var_ps(a, low, b);
    rows[i + kBit] = _mm512_permutex2var_ps(a, high, b);
  }
}

}  // namespace detail

/// Of 16 rows of 16.
ATH_AVX512 inline void transpose(Floats* rows) {
  detail::exchange_rows<1>(rows);
  detail::exchange_rows<2>(rows);
  detail::exchange_rows<4>(rows);
  detail::exchange_rows<8>(rows);
}

}  // namespace athanor::cpu::avx512
