#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#include "kernels/cpu/isa.h"
#include "tensor/half.h"

// Vectors of floats in intrinsics, for loops whose values must stay in registers: eight floats with AVX2,
// sixteen with AVX-512, the same operations with the same results. Other loops are plain C++ in vectorize().
//
// Code for both widths is a header *_code.h, included by one source per width that first defines ATH_ISA as
// avx2 or avx512. There it is the namespace of the vectors, and ATH_TARGET the attribute of every function
// that uses them. (A template over the width would not do: the attribute cannot depend on a parameter.)

#define ATH_TARGET ATH_TARGET_OF(ATH_ISA)
#define ATH_TARGET_OF(isa) ATH_TARGET_OF_NAMED(isa)
#define ATH_TARGET_OF_NAMED(isa) ATH_TARGET_OF_##isa
#define ATH_TARGET_OF_avx2 ATH_AVX2
#define ATH_TARGET_OF_avx512 ATH_AVX512

/// With AVX2, FMA and F16C. Call these only if has_avx2().
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
/// b where a is not larger, so also where either is NaN.
ATH_AVX2 inline Floats larger(Floats a, Floats b) {
  return _mm256_max_ps(a, b);
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

/// The first of a count that may be negative or above 8. (Stores with a mask take an AMD tens of cycles.)
ATH_AVX2 inline Floats load_first(const float* from, std::int64_t count) {
  if (count >= kFloats) return load(from);
  alignas(32) float lanes[kFloats] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load(lanes);
}
[[gnu::noinline]] ATH_AVX2 inline void store_some(float* to, std::int64_t count, Floats value) {
  alignas(32) float lanes[kFloats];
  store(lanes, value);
  for (std::int64_t i = 0; i < count; ++i) to[i] = lanes[i];
}
ATH_AVX2 inline void store_first(float* to, std::int64_t count, Floats value) {
  if (count >= kFloats) return store(to, value);
  store_some(to, count, value);
}
/// Leaves the others as they are: they may get infinity times 0.
ATH_AVX2 inline void add_first(float* to, std::int64_t count, Floats value) {
  const Floats before = load(to), sum = before + value;
  if (count >= kFloats) return store(to, sum);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i first = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  store(to, _mm256_blendv_ps(before, sum, _mm256_castsi256_ps(first)));
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

/// channel[k] is 16 pixels of channel k. Writes the first `count` floats as [pixel][channel].
template <int kChannels>
ATH_AVX2 inline void store_interleaved(const Floats (&channel)[kChannels][2], std::int64_t count, float* to) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, to += kFloats * kChannels, count -= kFloats * kChannels) {
    Floats pixels[kFloats];
#pragma GCC unroll 8
    for (int k = 0; k < kFloats; ++k) pixels[k] = k < kChannels ? channel[k][half] : zero();
    transpose(pixels);
    // A whole vector each: what exceeds the channels is overwritten by the next pixel's.
#pragma GCC unroll 8
    for (int i = 0; i < kFloats; ++i) {
      const std::int64_t left = count - i * kChannels;
      if (left >= kFloats)
        store(to + i * kChannels, pixels[i]);
      else
        store_some(to + i * kChannels, std::min<std::int64_t>(left, kChannels), pixels[i]);
    }
  }
}

}  // namespace athanor::cpu::avx2

/// With AVX-512. Call these only if has_avx512().
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
/// b where a is not larger, so also where either is NaN.
ATH_AVX512 inline Floats larger(Floats a, Floats b) {
  return _mm512_maskz_max_ps(kAll, a, b);
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

/// Of a count that may be negative or above 16.
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, kFloats)) - 1);
}
ATH_AVX512 inline Floats load_first(const float* from, std::int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
ATH_AVX512 inline void store_first(float* to, std::int64_t count, Floats value) {
  _mm512_mask_storeu_ps(to, first_lanes(count), value);
}
ATH_AVX512 inline void add_first(float* to, std::int64_t count, Floats value) {
  const __mmask16 lanes = first_lanes(count);
  _mm512_mask_storeu_ps(to, lanes, _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), value));
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

/// Permutation of 16 pixels from planar to interleaved order: lane l of vector v is channel (16 v + l) %
/// kChannels of pixel (16 v + l) / kChannels.
template <int kChannels> struct Interleaving {
  alignas(64) std::int32_t pixel[kChannels][kFloats];
  __mmask16 of_channel[kChannels][kChannels];

  constexpr Interleaving() : pixel(), of_channel() {
    for (int v = 0; v < kChannels; ++v) {
      for (int l = 0; l < kFloats; ++l) {
        const int at = v * kFloats + l;
        pixel[v][l] = at / kChannels;
        of_channel[v][at % kChannels] = static_cast<__mmask16>(of_channel[v][at % kChannels] | 1 << l);
      }
    }
  }
};

/// channel[k] is 16 pixels of channel k. Writes the first `count` floats as [pixel][channel].
template <int kChannels>
ATH_AVX512 inline void store_interleaved(const Floats (&channel)[kChannels][1], std::int64_t count,
                                         float* to) {
  static constexpr Interleaving<kChannels> kPlan;
#pragma GCC unroll 8
  for (int v = 0; v < kChannels; ++v) {
    const __m512i pixel = _mm512_load_si512(kPlan.pixel[v]);
    Floats mixed = zero();
#pragma GCC unroll 8
    for (int k = 0; k < kChannels; ++k)
      mixed = _mm512_mask_permutexvar_ps(mixed, kPlan.of_channel[v][k], pixel, channel[k][0]);
    store_first(to + v * kFloats, count - v * kFloats, mixed);
  }
}

}  // namespace athanor::cpu::avx512
