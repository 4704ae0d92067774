#pragma once

#include <cstdint>

#include "kernels/cpu/vector.h"
#include "kernels/int8.h"

// Vectors of i32 beside those of floats (vector.h): products of 8-bit integers, and how their sums become u8,
// in the steps of kernels/int8_ops.h.
//
// Only the upper bound is applied to floats: what rounds to no i32 is then below all of them, or NaN, and the
// instruction that rounds makes it -2^31, as which it ends at `low`. Then round(v) + zero is at most `high`,
// and whatever saturates on the way to u8 is negative, before and after: at least 0 is all that `low` needs.

#define ATH_TARGET_OF_avx512_vnni ATH_AVX512_VNNI

namespace athanor::cpu {

inline constexpr int kRounded = 4;  ///< vectors of i32 that one of bytes holds

}  // namespace athanor::cpu

namespace athanor::cpu::avx2 {

using Ints = __m256i;

ATH_AVX2 inline Ints load_ints(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
ATH_AVX2 inline void store_ints(void* to, Ints value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}
ATH_AVX2 inline Ints all_ints(std::int32_t value) {
  return _mm256_set1_epi32(value);
}
ATH_AVX2 inline Ints sum_of(Ints a, Ints b) {
  return _mm256_add_epi32(a, b);
}
ATH_AVX2 inline Floats as_floats(Ints value) {
  return _mm256_cvtepi32_ps(value);
}
/// The first 8 bytes, each as an i32.
ATH_AVX2 inline Ints widened(__m128i bytes) {
  return _mm256_cvtepu8_epi32(bytes);
}
ATH_AVX2 inline __m128i load_bytes(const std::uint8_t* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}
ATH_AVX2 inline void store_bytes(std::uint8_t* to, __m128i bytes) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
}

/// RoundToU8 of kRounded vectors, whose bytes are stored one after another.
struct VectorRounding {
  Floats high;
  __m256i zero, low;  ///< i16, u8

  ATH_AVX2 explicit VectorRounding(const kernels::Rounding& r)
      : high(all(static_cast<float>(r.high - r.zero))),
        zero(_mm256_set1_epi16(static_cast<short>(r.zero))),
        low(_mm256_set1_epi8(static_cast<char>(r.low))) {}
  /// In i16, lane by lane of 16 bytes, as instructions pack.
  ATH_AVX2 __m256i words(Floats a, Floats b) const {
    const Ints first = _mm256_cvtps_epi32(_mm256_min_ps(high, a)),
               second = _mm256_cvtps_epi32(_mm256_min_ps(high, b));
    return _mm256_add_epi16(_mm256_packs_epi32(first, second), zero);
  }
  ATH_AVX2 void operator()(const Floats (&v)[kRounded], std::uint8_t* to) const {
    const __m256i bytes = _mm256_max_epu8(_mm256_packus_epi16(words(v[0], v[1]), words(v[2], v[3])), low);
    store_ints(to, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  }
};

}  // namespace athanor::cpu::avx2

namespace athanor::cpu::avx512 {

using Ints = __m512i;

ATH_AVX512 inline Ints load_ints(const void* from) {
  return _mm512_loadu_si512(from);
}
ATH_AVX512 inline void store_ints(void* to, Ints value) {
  _mm512_storeu_si512(to, value);
}
ATH_AVX512 inline Ints all_ints(std::int32_t value) {
  return _mm512_set1_epi32(value);
}
ATH_AVX512 inline Ints sum_of(Ints a, Ints b) {
  return _mm512_add_epi32(a, b);
}
ATH_AVX512 inline Floats as_floats(Ints value) {
  return _mm512_maskz_cvtepi32_ps(kAll, value);
}
/// 16 bytes, each as an i32.
ATH_AVX512 inline Ints widened(__m128i bytes) {
  return _mm512_maskz_cvtepu8_epi32(kAll, bytes);
}
ATH_AVX512 inline __m128i load_bytes(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
ATH_AVX512 inline void store_bytes(std::uint8_t* to, __m128i bytes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

/// As with AVX2.
struct VectorRounding {
  Floats high;
  Ints zero, low;  ///< i16, u8

  ATH_AVX512 explicit VectorRounding(const kernels::Rounding& r)
      : high(all(static_cast<float>(r.high - r.zero))),
        zero(_mm512_set1_epi16(static_cast<short>(r.zero))),
        low(_mm512_set1_epi8(static_cast<char>(r.low))) {}
  ATH_AVX512 Ints words(Floats a, Floats b) const {
    const Ints first = _mm512_maskz_cvtps_epi32(kAll, _mm512_maskz_min_ps(kAll, high, a)),
               second = _mm512_maskz_cvtps_epi32(kAll, _mm512_maskz_min_ps(kAll, high, b));
    return _mm512_add_epi16(_mm512_packs_epi32(first, second), zero);
  }
  ATH_AVX512 void operator()(const Floats (&v)[kRounded], std::uint8_t* to) const {
    alignas(64) static constexpr std::int32_t kOrder[] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                          2, 6, 10, 14, 3, 7, 11, 15};
    const Ints bytes = _mm512_max_epu8(_mm512_packus_epi16(words(v[0], v[1]), words(v[2], v[3])), low);
    store_ints(to, _mm512_maskz_permutexvar_epi32(kAll, load_ints(kOrder), bytes));
  }
};

}  // namespace athanor::cpu::avx512

/// With AVX-512 VNNI. Call these only if has_avx512_vnni().
namespace athanor::cpu::avx512_vnni {

using namespace athanor::cpu::avx512;

}  // namespace athanor::cpu::avx512_vnni
