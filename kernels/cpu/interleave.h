#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/isa.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

namespace athanor::cpu {

/// Permutation of 16 pixels from planar to interleaved order: lane l of vector v is channel (16 v + l) %
/// kChannels of pixel (16 v + l) / kChannels.
template <int kChannels> struct Interleaving {
  static constexpr int kLanes = 16;

  alignas(64) std::int32_t pixel[kChannels][kLanes];
  __mmask16 of_channel[kChannels][kChannels];

  constexpr Interleaving() : pixel(), of_channel() {
    for (int v = 0; v < kChannels; ++v) {
      for (int l = 0; l < kLanes; ++l) {
        const int at = v * kLanes + l;
        pixel[v][l] = at / kChannels;
        of_channel[v][at % kChannels] = static_cast<__mmask16>(of_channel[v][at % kChannels] | 1 << l);
      }
    }
  }
};

/// channel[k] is 16 pixels of channel k. Writes the first `count` floats as [pixel][channel].
template <int kChannels>
ATH_AVX512 inline void store_interleaved(const __m512* channel, std::int64_t count, float* to) {
  static constexpr Interleaving<kChannels> kPlan;
  constexpr std::int64_t kLanes = 16;
#pragma GCC unroll 8
  for (int v = 0; v < kChannels; ++v) {
    const __m512i pixel = _mm512_load_si512(kPlan.pixel[v]);
    __m512 mixed = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int k = 0; k < kChannels; ++k)
      mixed = _mm512_mask_permutexvar_ps(mixed, kPlan.of_channel[v][k], pixel, channel[k]);
    const std::int64_t left = std::clamp<std::int64_t>(count - v * kLanes, 0, kLanes);
    _mm512_mask_storeu_ps(to + v * kLanes, static_cast<__mmask16>((1u << left) - 1), mixed);
  }
}

}  // namespace athanor::cpu

#endif
