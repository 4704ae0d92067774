#pragma once

// AVX-512 on a CPU without it: the intrinsics that kernels/cpu uses, as plain loops over lanes. A source that
// is compiled with this header first (-include) takes them, and finds that the CPU has AVX-512. An intrinsic
// that is not here does not compile.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/cpu/isa.h"
#include "tensor/half.h"

namespace athanor::cpu {

inline bool has_emulated_avx512() {
  return true;
}
inline bool has_emulated_avx512_vnni() {
  return true;
}

}  // namespace athanor::cpu

namespace athanor::avx512_emulated {

template <class T> using Lanes = std::array<T, 16>;
using Words = std::array<std::int16_t, 32>;
using Bytes = std::array<std::uint8_t, 64>;

template <class T, class V> Lanes<T> lanes_of(const V& vector) {
  return std::bit_cast<Lanes<T>>(vector);
}
template <class V, class A> V vector_of(const A& lanes) {
  return std::bit_cast<V>(lanes);
}
/// f(i) of each lane i.
template <class F> __m512 floats(const F& f) {
  Lanes<float> lanes;
  for (unsigned i = 0; i < 16; ++i) lanes[i] = f(i);
  return vector_of<__m512>(lanes);
}
template <class F> __m512i ints(const F& f) {
  Lanes<std::uint32_t> lanes;
  for (unsigned i = 0; i < 16; ++i) lanes[i] = f(i);
  return vector_of<__m512i>(lanes);
}
inline bool is_in(__mmask16 mask, unsigned lane) {
  return (mask >> lane & 1) != 0;
}

// Memory ---------------------------------------------------------------------------------------------------

inline __m512 maskz_loadu_ps(__mmask16 mask, const float* from) {
  return floats([&](unsigned i) { return is_in(mask, i) ? from[i] : 0.0f; });
}
inline __m512 loadu_ps(const float* from) {
  return maskz_loadu_ps(0xffff, from);
}
inline void mask_storeu_ps(float* to, __mmask16 mask, __m512 value) {
  const auto lanes = lanes_of<float>(value);
  for (unsigned i = 0; i < 16; ++i)
    if (is_in(mask, i)) to[i] = lanes[i];
}
inline void storeu_ps(float* to, __m512 value) {
  mask_storeu_ps(to, 0xffff, value);
}
inline __m512i loadu_si512(const void* from) {
  __m512i value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline void storeu_si512(void* to, __m512i value) {
  std::memcpy(to, &value, sizeof(value));
}

// Floats ---------------------------------------------------------------------------------------------------

inline __m512 set1_ps(float value) {
  return floats([&](unsigned) { return value; });
}
inline __m512 setzero_ps() {
  return set1_ps(0.0f);
}
inline __m512 add_ps(__m512 a, __m512 b) {
  const auto x = lanes_of<float>(a), y = lanes_of<float>(b);
  return floats([&](unsigned i) { return x[i] + y[i]; });
}
inline __m512 mul_ps(__m512 a, __m512 b) {
  const auto x = lanes_of<float>(a), y = lanes_of<float>(b);
  return floats([&](unsigned i) { return x[i] * y[i]; });
}
inline __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
  const auto x = lanes_of<float>(a), y = lanes_of<float>(b), z = lanes_of<float>(c);
  return floats([&](unsigned i) { return std::fma(x[i], y[i], z[i]); });
}
inline __m512 maskz_max_ps(__mmask16 mask, __m512 a, __m512 b) {
  const auto x = lanes_of<float>(a), y = lanes_of<float>(b);  // b if one is NaN
  return floats([&](unsigned i) { return !is_in(mask, i) ? 0.0f : x[i] > y[i] ? x[i] : y[i]; });
}
inline __m512 maskz_min_ps(__mmask16 mask, __m512 a, __m512 b) {
  const auto x = lanes_of<float>(a), y = lanes_of<float>(b);  // b if one is NaN
  return floats([&](unsigned i) { return !is_in(mask, i) ? 0.0f : x[i] < y[i] ? x[i] : y[i]; });
}
inline __m512 mask_mov_ps(__m512 from, __mmask16 mask, __m512 value) {
  const auto x = lanes_of<float>(from), y = lanes_of<float>(value);
  return floats([&](unsigned i) { return is_in(mask, i) ? y[i] : x[i]; });
}
template <int kPredicate> __mmask16 cmp_ps_mask(__m512 a, __m512 b) {
  static_assert(kPredicate == _CMP_UNORD_Q || kPredicate == _CMP_LT_OQ);
  const auto x = lanes_of<float>(a), y = lanes_of<float>(b);
  unsigned mask = 0;
  for (unsigned i = 0; i < 16; ++i) {
    const bool unordered = std::isnan(x[i]) || std::isnan(y[i]);
    if (kPredicate == _CMP_UNORD_Q ? unordered : x[i] < y[i]) mask |= 1u << i;
  }
  return static_cast<__mmask16>(mask);
}

// Permutations ---------------------------------------------------------------------------------------------

inline __m512 mask_permutexvar_ps(__m512 from, __mmask16 mask, __m512i index, __m512 value) {
  const auto x = lanes_of<float>(from), y = lanes_of<float>(value);
  const auto at = lanes_of<std::uint32_t>(index);
  return floats([&](unsigned i) { return is_in(mask, i) ? y[at[i] % 16] : x[i]; });
}
inline __m512 permutex2var_ps(__m512 a, __m512i index, __m512 b) {
  const auto x = lanes_of<float>(a), y = lanes_of<float>(b);
  const auto at = lanes_of<std::uint32_t>(index);
  return floats([&](unsigned i) { return at[i] % 32 < 16 ? x[at[i] % 16] : y[at[i] % 16]; });
}
inline __m512i maskz_permutexvar_epi32(__mmask16 mask, __m512i index, __m512i value) {
  const auto x = lanes_of<std::uint32_t>(value), at = lanes_of<std::uint32_t>(index);
  return ints([&](unsigned i) { return is_in(mask, i) ? x[at[i] % 16] : 0; });
}

// Bits -----------------------------------------------------------------------------------------------------

inline __m512i castps_si512(__m512 value) {
  return vector_of<__m512i>(lanes_of<std::uint32_t>(value));
}
inline __m512 castsi512_ps(__m512i value) {
  return vector_of<__m512>(lanes_of<std::uint32_t>(value));
}
inline __m512i set1_epi32(int value) {
  return ints([&](unsigned) { return static_cast<std::uint32_t>(value); });
}
inline __m512i and_epi32(__m512i a, __m512i b) {
  const auto x = lanes_of<std::uint32_t>(a), y = lanes_of<std::uint32_t>(b);
  return ints([&](unsigned i) { return x[i] & y[i]; });
}
inline __m512i add_epi32(__m512i a, __m512i b) {
  const auto x = lanes_of<std::uint32_t>(a), y = lanes_of<std::uint32_t>(b);
  return ints([&](unsigned i) { return x[i] + y[i]; });
}
inline __m512i sub_epi32(__m512i a, __m512i b) {
  const auto x = lanes_of<std::uint32_t>(a), y = lanes_of<std::uint32_t>(b);
  return ints([&](unsigned i) { return x[i] - y[i]; });
}
/// Adds the products of four u8 of `a` and four i8 of `b`.
inline __m512i dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
  const auto from = lanes_of<std::uint32_t>(sum), x = lanes_of<std::uint32_t>(a),
             y = lanes_of<std::uint32_t>(b);
  return ints([&](unsigned i) {
    std::uint32_t total = from[i];
    for (unsigned shift = 0; shift < 32; shift += 8)
      total += static_cast<std::uint32_t>(static_cast<int>(x[i] >> shift & 0xff) *
                                          static_cast<std::int8_t>(y[i] >> shift & 0xff));
    return total;
  });
}
inline __m512i mask_or_epi32(__m512i from, __mmask16 mask, __m512i a, __m512i b) {
  const auto f = lanes_of<std::uint32_t>(from), x = lanes_of<std::uint32_t>(a),
             y = lanes_of<std::uint32_t>(b);
  return ints([&](unsigned i) { return is_in(mask, i) ? x[i] | y[i] : f[i]; });
}
inline __m512i maskz_slli_epi32(__mmask16 mask, __m512i value, unsigned count) {
  const auto x = lanes_of<std::uint32_t>(value);
  return ints([&](unsigned i) { return is_in(mask, i) ? x[i] << count : 0; });
}
inline __m512i maskz_srli_epi32(__mmask16 mask, __m512i value, unsigned count) {
  const auto x = lanes_of<std::uint32_t>(value);
  return ints([&](unsigned i) { return is_in(mask, i) ? x[i] >> count : 0; });
}

// Conversions ----------------------------------------------------------------------------------------------

inline __m512i maskz_cvtepu16_epi32(__mmask16 mask, __m256i value) {
  const auto x = lanes_of<std::uint16_t>(value);
  return ints([&](unsigned i) { return is_in(mask, i) ? std::uint32_t{x[i]} : 0; });
}
inline __m256i maskz_cvtepi32_epi16(__mmask16 mask, __m512i value) {
  const auto x = lanes_of<std::uint32_t>(value);
  Lanes<std::uint16_t> low;
  for (unsigned i = 0; i < 16; ++i) low[i] = static_cast<std::uint16_t>(is_in(mask, i) ? x[i] : 0);
  return vector_of<__m256i>(low);
}
inline __m512i maskz_cvtepu8_epi32(__mmask16 mask, __m128i value) {
  const auto x = lanes_of<std::uint8_t>(value);
  return ints([&](unsigned i) { return is_in(mask, i) ? std::uint32_t{x[i]} : 0; });
}
inline __m512 maskz_cvtepi32_ps(__mmask16 mask, __m512i value) {
  const auto x = lanes_of<std::int32_t>(value);
  return floats([&](unsigned i) { return is_in(mask, i) ? static_cast<float>(x[i]) : 0.0f; });
}
/// The nearest even integer; of a value that no i32 holds, the smallest.
inline __m512i maskz_cvtps_epi32(__mmask16 mask, __m512 value) {
  const auto x = lanes_of<float>(value);
  return ints([&](unsigned i) -> std::uint32_t {
    if (!is_in(mask, i)) return 0;
    const float nearest = std::nearbyint(x[i]);
    if (!(nearest >= -0x1p31f && nearest < 0x1p31f)) return 0x80000000u;
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(nearest));
  });
}
inline __m512 maskz_cvtph_ps(__mmask16 mask, __m256i value) {
  const auto x = lanes_of<Half>(value);
  return floats([&](unsigned i) { return is_in(mask, i) ? static_cast<float>(x[i]) : 0.0f; });
}
template <int kRounding> __m256i maskz_cvtps_ph(__mmask16 mask, __m512 value) {
  static_assert(kRounding == (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  const auto x = lanes_of<float>(value);
  Lanes<Half> halves;
  for (unsigned i = 0; i < 16; ++i) halves[i] = Half(is_in(mask, i) ? x[i] : 0.0f);
  return vector_of<__m256i>(halves);
}

// i16 and u8 -----------------------------------------------------------------------------------------------

inline __m512i set1_epi16(short value) {
  Words words;
  words.fill(value);
  return vector_of<__m512i>(words);
}
inline __m512i set1_epi8(char value) {
  Bytes bytes;
  bytes.fill(static_cast<std::uint8_t>(value));
  return vector_of<__m512i>(bytes);
}
inline __m512i add_epi16(__m512i a, __m512i b) {
  const auto x = std::bit_cast<Words>(a), y = std::bit_cast<Words>(b);
  Words sum;
  for (unsigned i = 0; i < 32; ++i) sum[i] = static_cast<std::int16_t>(x[i] + y[i]);
  return vector_of<__m512i>(sum);
}
inline __m512i max_epu8(__m512i a, __m512i b) {
  const auto x = std::bit_cast<Bytes>(a), y = std::bit_cast<Bytes>(b);
  Bytes larger;
  for (unsigned i = 0; i < 64; ++i) larger[i] = std::max(x[i], y[i]);
  return vector_of<__m512i>(larger);
}
/// Of each 16 bytes, the four i32 of `a` and then those of `b`, each as the nearest i16.
inline __m512i packs_epi32(__m512i a, __m512i b) {
  const auto x = lanes_of<std::int32_t>(a), y = lanes_of<std::int32_t>(b);
  Words words;
  for (unsigned i = 0; i < 32; ++i) {
    const std::int32_t value = (i % 8 < 4 ? x : y)[i / 8 * 4 + i % 4];
    words[i] = static_cast<std::int16_t>(std::clamp(value, -0x8000, 0x7fff));
  }
  return vector_of<__m512i>(words);
}
/// Of each 16 bytes, the eight i16 of `a` and then those of `b`, each as the nearest u8.
inline __m512i packus_epi16(__m512i a, __m512i b) {
  const auto x = std::bit_cast<Words>(a), y = std::bit_cast<Words>(b);
  Bytes bytes;
  for (unsigned i = 0; i < 64; ++i) {
    const int value = (i % 16 < 8 ? x : y)[i / 16 * 8 + i % 8];
    bytes[i] = static_cast<std::uint8_t>(std::clamp(value, 0, 0xff));
  }
  return vector_of<__m512i>(bytes);
}

}  // namespace athanor::avx512_emulated

#undef ATH_AVX512
#define ATH_AVX512 ATH_AVX2

#undef ATH_AVX512_VNNI
#define ATH_AVX512_VNNI ATH_AVX2

#define has_avx512 has_emulated_avx512
#define has_avx512_vnni has_emulated_avx512_vnni

#define _mm512_add_epi16 athanor::avx512_emulated::add_epi16
#define _mm512_add_epi32 athanor::avx512_emulated::add_epi32
#define _mm512_add_ps athanor::avx512_emulated::add_ps
#define _mm512_and_epi32 athanor::avx512_emulated::and_epi32
#define _mm512_castps_si512 athanor::avx512_emulated::castps_si512
#define _mm512_castsi512_ps athanor::avx512_emulated::castsi512_ps
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask(a, b, predicate) athanor::avx512_emulated::cmp_ps_mask<predicate>(a, b)
#define _mm512_dpbusd_epi32 athanor::avx512_emulated::dpbusd_epi32
#define _mm512_fmadd_ps athanor::avx512_emulated::fmadd_ps
#define _mm512_load_si512 athanor::avx512_emulated::loadu_si512
#define _mm512_loadu_ps athanor::avx512_emulated::loadu_ps
#define _mm512_loadu_si512 athanor::avx512_emulated::loadu_si512
#define _mm512_mask_mov_ps athanor::avx512_emulated::mask_mov_ps
#define _mm512_mask_or_epi32 athanor::avx512_emulated::mask_or_epi32
#define _mm512_mask_permutexvar_ps athanor::avx512_emulated::mask_permutexvar_ps
#define _mm512_mask_storeu_ps athanor::avx512_emulated::mask_storeu_ps
#define _mm512_maskz_cvtepi32_epi16 athanor::avx512_emulated::maskz_cvtepi32_epi16
#define _mm512_maskz_cvtepi32_ps athanor::avx512_emulated::maskz_cvtepi32_ps
#define _mm512_maskz_cvtepu16_epi32 athanor::avx512_emulated::maskz_cvtepu16_epi32
#define _mm512_maskz_cvtepu8_epi32 athanor::avx512_emulated::maskz_cvtepu8_epi32
#define _mm512_maskz_cvtph_ps athanor::avx512_emulated::maskz_cvtph_ps
#define _mm512_maskz_cvtps_epi32 athanor::avx512_emulated::maskz_cvtps_epi32
#undef _mm512_maskz_cvtps_ph
#define _mm512_maskz_cvtps_ph(mask, value, rounding) \
  athanor::avx512_emulated::maskz_cvtps_ph<rounding>(mask, value)
#define _mm512_maskz_loadu_ps athanor::avx512_emulated::maskz_loadu_ps
#define _mm512_maskz_max_ps athanor::avx512_emulated::maskz_max_ps
#define _mm512_maskz_min_ps athanor::avx512_emulated::maskz_min_ps
#define _mm512_maskz_permutexvar_epi32 athanor::avx512_emulated::maskz_permutexvar_epi32
#undef _mm512_maskz_slli_epi32
#define _mm512_maskz_slli_epi32 athanor::avx512_emulated::maskz_slli_epi32
#undef _mm512_maskz_srli_epi32
#define _mm512_maskz_srli_epi32 athanor::avx512_emulated::maskz_srli_epi32
#define _mm512_max_epu8 athanor::avx512_emulated::max_epu8
#define _mm512_mul_ps athanor::avx512_emulated::mul_ps
#define _mm512_packs_epi32 athanor::avx512_emulated::packs_epi32
#define _mm512_packus_epi16 athanor::avx512_emulated::packus_epi16
#define _mm512_permutex2var_ps athanor::avx512_emulated::permutex2var_ps
#define _mm512_set1_epi16 athanor::avx512_emulated::set1_epi16
#define _mm512_set1_epi32 athanor::avx512_emulated::set1_epi32
#define _mm512_set1_epi8 athanor::avx512_emulated::set1_epi8
#define _mm512_set1_ps athanor::avx512_emulated::set1_ps
#define _mm512_setzero_ps athanor::avx512_emulated::setzero_ps
#define _mm512_storeu_ps athanor::avx512_emulated::storeu_ps
#define _mm512_storeu_si512 athanor::avx512_emulated::storeu_si512
#define _mm512_sub_epi32 athanor::avx512_emulated::sub_epi32
