#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/resize_ops.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Resizing of an image's rows (data/image/resize.h), in two versions with the same bits.
// kernels/resize_ops.h explains the arithmetic.

namespace athanor::resize_rows {

inline constexpr std::int64_t kLanes = 8;   // values of a group
inline constexpr int kBytes = 16;           // source bytes of a group
inline constexpr std::int64_t kSlack = 32;  // values after a row that may be read and written

/// The groups of one row: see Resizer. Their number is even.
struct Groups {
  const std::int32_t *from, *to;
  const std::uint8_t* pick;
  const std::uint16_t* weight;
  std::size_t count;
  std::int64_t taps, channels;
};

namespace plain {

using kernels::upper_half;

/// Resizes one row of the source to the result's width, with 8 fractional bits. The source needs kBytes
/// readable bytes after its end, the result kSlack values.
template <int Taps> void narrow_row(const std::uint8_t* row, const Groups& groups, std::uint16_t* out) {
  const std::int64_t taps = Taps ? Taps : groups.taps;
  const std::uint16_t* weight = groups.weight;
  for (std::size_t g = 0; g < groups.count; ++g) {
    const std::uint8_t* from = row + groups.from[g];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint8_t at = groups.pick[g * kBytes + 2 * lane + 1];
      std::uint16_t sum = kernels::first_pass_start(taps);
      for (std::int64_t k = 0; k < taps && at < kBytes; ++k) {
        const std::size_t w = (g / 2 * static_cast<std::size_t>(taps) + static_cast<std::size_t>(k)) * 2;
        sum = static_cast<std::uint16_t>(sum + kernels::weighted_byte(from[at + k * groups.channels],
                                                                      weight[(w + g % 2) * kLanes + lane]));
      }
      out[static_cast<std::size_t>(groups.to[g]) + lane] = sum;
    }
  }
}

/// One row of the result: the blend of `taps` resized rows, each with kSlack extra values.
template <int Taps>
void blend_rows(std::int64_t values, std::int64_t taps_given, const std::uint16_t* weight,
                const std::uint16_t* const* rows, std::uint8_t* out) {
  const std::int64_t taps = Taps ? Taps : taps_given;
  for (std::int64_t x = 0; x < values; ++x) {
    std::uint16_t sum = kernels::second_pass_start(taps);
    for (std::int64_t k = 0; k < taps; ++k) {
      sum = static_cast<std::uint16_t>(sum + upper_half(rows[k][x], weight[k]));
    }
    out[x] = static_cast<std::uint8_t>(sum >> 8);
  }
}

}  // namespace plain

#if defined(__AVX2__)

namespace avx2 {

inline __m256i load_32(const void* at) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

// Two groups at a time. Compilers do not emit byte shuffles by a table, so this uses intrinsics.
template <int Taps> void narrow_row(const std::uint8_t* row, const Groups& groups, std::uint16_t* out) {
  const std::int64_t taps = Taps ? Taps : groups.taps;
  const auto load = [](const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); };
  const std::uint16_t* weight = groups.weight;
  for (std::size_t g = 0; g < groups.count; g += 2) {
    const std::uint8_t *a = row + groups.from[g], *b = row + groups.from[g + 1];
    const __m256i pick = load_32(groups.pick + g * std::size_t{kBytes});
    __m256i sum = _mm256_set1_epi16(static_cast<short>(kernels::first_pass_start(taps)));
    for (std::int64_t k = 0; k < taps; ++k, weight += 2 * kLanes) {
      const std::int64_t shift = k * groups.channels;
      const __m256i bytes =
          _mm256_inserti128_si256(_mm256_castsi128_si256(load(a + shift)), load(b + shift), 1);
      const __m256i values = _mm256_shuffle_epi8(bytes, pick);
      sum = _mm256_add_epi16(sum, _mm256_mulhi_epu16(values, load_32(weight)));
    }
    // The next group overwrites the excess values of this one.
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + groups.to[g]), _mm256_castsi256_si128(sum));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + groups.to[g + 1]), _mm256_extracti128_si256(sum, 1));
  }
}

template <int Taps>
void blend_rows(std::int64_t values, std::int64_t taps_given, const std::uint16_t* weight,
                const std::uint16_t* const* rows, std::uint8_t* out) {
  const std::int64_t taps = Taps ? Taps : taps_given;
  const __m256i start = _mm256_set1_epi16(static_cast<short>(kernels::second_pass_start(taps)));
  for (std::int64_t x = 0; x < values; x += 32) {
    __m256i low = start, high = start;
    for (std::int64_t k = 0; k < taps; ++k) {
      const __m256i w = _mm256_set1_epi16(static_cast<short>(weight[k]));
      low = _mm256_add_epi16(low, _mm256_mulhi_epu16(load_32(rows[k] + x), w));
      high = _mm256_add_epi16(high, _mm256_mulhi_epu16(load_32(rows[k] + x + 16), w));
    }
    // Packs within 16-byte halves; the permutation restores the order.
    const __m256i packed = _mm256_packus_epi16(_mm256_srli_epi16(low, 8), _mm256_srli_epi16(high, 8));
    const __m256i bytes = _mm256_permute4x64_epi64(packed, 0b11'01'10'00);
    if (values - x >= 32) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), bytes);
    } else {
      std::uint8_t last[32];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(last), bytes);
      std::memcpy(out + x, last, static_cast<std::size_t>(values - x));
    }
  }
}

}  // namespace avx2

namespace in_use = avx2;
#else
namespace in_use = plain;
#endif

// For more than kernels::kManyTaps taps: these sum all 32 bits.

inline void narrow_row_exactly(const std::uint8_t* row, std::span<const std::int32_t> first,
                               std::int64_t taps, const std::uint16_t* weight, std::int64_t channels,
                               std::uint16_t* out) {
  for (const std::int32_t start : first) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::uint8_t* from = row + start * channels + c;
      std::uint32_t sum = 128;
      for (std::int64_t k = 0; k < taps; ++k) sum += std::uint32_t{weight[k]} * from[k * channels];
      *out++ = static_cast<std::uint16_t>(sum >> 8);
    }
    weight += taps;
  }
}

inline void blend_rows_exactly(std::int64_t values, std::int64_t taps, const std::uint16_t* weight,
                               const std::uint16_t* const* rows, std::uint8_t* out) {
  for (std::int64_t x = 0; x < values; ++x) {
    std::uint32_t sum = 0;  // of values up to 65280, with weights that sum to 65535
    for (std::int64_t k = 0; k < taps; ++k) sum += std::uint32_t{weight[k]} * rows[k][x];
    out[x] = static_cast<std::uint8_t>(((sum >> 16) + 129) >> 8);
  }
}

}  // namespace athanor::resize_rows
