#if defined(__x86_64__) && defined(__GNUC__)

#include <algorithm>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/isa.h"

namespace athanor::cpu::conv_tiles::avx512 {
namespace {

using Vector = __m512;
constexpr int kWidth = 16;
constexpr const char* kIsa = "AVX-512";

// Of 32 registers.
struct {
  int pixels, blocks;
} constexpr kChannelTiles[] = {{4, 1}, {8, 1}, {12, 1}, {16, 1}, {4, 2}, {8, 2}, {12, 2}};
constexpr int kSpans = 3, kSpanChannels = 8, kMaxPooled = 6, kPooledChannels = 6, kMaxPatch = 12,
              kWeightSums = 24;

ATH_AVX512 inline Vector zero() {
  return _mm512_setzero_ps();
}
ATH_AVX512 inline Vector all(float value) {
  return _mm512_set1_ps(value);
}
ATH_AVX512 inline Vector load(const float* from) {
  return _mm512_loadu_ps(from);
}
ATH_AVX512 inline void store(float* to, Vector value) {
  _mm512_storeu_ps(to, value);
}
/// a b + c, rounded once.
ATH_AVX512 inline Vector fused(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
/// g++ 12 warns of _mm512_max_ps alone.
ATH_AVX512 inline Vector larger(Vector a, Vector b) {
  return _mm512_maskz_max_ps(0xffff, a, b);
}

/// Of a count that may be negative or above 16.
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, kWidth)) - 1);
}
ATH_AVX512 inline Vector load_first(const float* from, std::int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
ATH_AVX512 inline void store_first(float* to, std::int64_t count, Vector value) {
  _mm512_mask_storeu_ps(to, first_lanes(count), value);
}
ATH_AVX512 inline void add_first(float* to, std::int64_t count, Vector value) {
  const __mmask16 lanes = first_lanes(count);
  _mm512_mask_storeu_ps(to, lanes, _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), value));
}

/// Permutation of 16 pixels from planar to interleaved order: lane l of vector v is channel (16 v + l) %
/// kChannels of pixel (16 v + l) / kChannels.
template <int kChannels> struct Interleaving {
  alignas(64) std::int32_t pixel[kChannels][kWidth];
  __mmask16 of_channel[kChannels][kChannels];

  constexpr Interleaving() : pixel(), of_channel() {
    for (int v = 0; v < kChannels; ++v) {
      for (int l = 0; l < kWidth; ++l) {
        const int at = v * kWidth + l;
        pixel[v][l] = at / kChannels;
        of_channel[v][at % kChannels] = static_cast<__mmask16>(of_channel[v][at % kChannels] | 1 << l);
      }
    }
  }
};

/// channel[k] is 16 pixels of channel k. Writes the first `count` floats as [pixel][channel].
template <int kChannels>
ATH_AVX512 inline void store_interleaved(const Vector (&channel)[kChannels][1], std::int64_t count,
                                         float* to) {
  static constexpr Interleaving<kChannels> kPlan;
#pragma GCC unroll 8
  for (int v = 0; v < kChannels; ++v) {
    const __m512i pixel = _mm512_load_si512(kPlan.pixel[v]);
    Vector mixed = zero();
#pragma GCC unroll 8
    for (int k = 0; k < kChannels; ++k)
      mixed = _mm512_mask_permutexvar_ps(mixed, kPlan.of_channel[v][k], pixel, channel[k][0]);
    store_first(to + v * kWidth, count - v * kWidth, mixed);
  }
}

}  // namespace
}  // namespace athanor::cpu::conv_tiles::avx512

#define ATH_ISA avx512
#define ATH_TARGET ATH_AVX512
#include "kernels/cpu/conv_tiles_code.h"

#endif
