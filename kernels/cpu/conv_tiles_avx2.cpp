#if defined(__x86_64__) && defined(__GNUC__)

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vector_avx2.h"

namespace athanor::cpu::conv_tiles::avx2 {
namespace {

using Vector = __m256;
constexpr int kWidth = 8;
constexpr const char* kIsa = "AVX2";

// Of 16 registers.
struct {
  int pixels, blocks;
} constexpr kChannelTiles[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}};
constexpr int kSpans = 1, kSpanChannels = 6, kMaxPooled = 1, kPooledChannels = 3, kMaxPatch = 3,
              kWeightSums = 12;

ATH_AVX2 inline Vector zero() {
  return _mm256_setzero_ps();
}
ATH_AVX2 inline Vector all(float value) {
  return _mm256_set1_ps(value);
}
ATH_AVX2 inline Vector load(const float* from) {
  return _mm256_loadu_ps(from);
}
ATH_AVX2 inline void store(float* to, Vector value) {
  _mm256_storeu_ps(to, value);
}
/// a b + c, rounded once.
ATH_AVX2 inline Vector fused(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
ATH_AVX2 inline Vector larger(Vector a, Vector b) {
  return _mm256_max_ps(a, b);
}

/// The first of a count that may be negative or above 8. (Stores with a mask take an AMD tens of cycles.)
ATH_AVX2 inline Vector load_first(const float* from, std::int64_t count) {
  if (count >= kWidth) return load(from);
  alignas(32) float lanes[kWidth] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load(lanes);
}
[[gnu::noinline]] ATH_AVX2 void store_some(float* to, std::int64_t count, Vector value) {
  alignas(32) float lanes[kWidth];
  store(lanes, value);
  for (std::int64_t i = 0; i < count; ++i) to[i] = lanes[i];
}
ATH_AVX2 inline void store_first(float* to, std::int64_t count, Vector value) {
  if (count >= kWidth) return store(to, value);
  store_some(to, count, value);
}
/// Leaves the others as they are: they may get infinity times 0.
ATH_AVX2 inline void add_first(float* to, std::int64_t count, Vector value) {
  const Vector before = load(to), sum = before + value;
  if (count >= kWidth) return store(to, sum);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i first = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  store(to, _mm256_blendv_ps(before, sum, _mm256_castsi256_ps(first)));
}

/// channel[k] is 16 pixels of channel k. Writes the first `count` floats as [pixel][channel].
template <int kChannels>
ATH_AVX2 inline void store_interleaved(const Vector (&channel)[kChannels][2], std::int64_t count, float* to) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, to += kWidth * kChannels, count -= kWidth * kChannels) {
    Vector pixels[kWidth];
#pragma GCC unroll 8
    for (int k = 0; k < kWidth; ++k) pixels[k] = k < kChannels ? channel[k][half] : zero();
    cpu::avx2::transpose(pixels);
    // A whole vector each: what exceeds the channels is overwritten by the next pixel's.
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; ++i) {
      const std::int64_t left = count - i * kChannels;
      if (left >= kWidth)
        store(to + i * kChannels, pixels[i]);
      else
        store_some(to + i * kChannels, std::min<std::int64_t>(left, kChannels), pixels[i]);
    }
  }
}

}  // namespace
}  // namespace athanor::cpu::conv_tiles::avx2

#define ATH_ISA avx2
#define ATH_TARGET ATH_AVX2
#include "kernels/cpu/conv_tiles_code.h"

#endif
