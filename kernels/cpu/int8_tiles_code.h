// No #pragma once: included once per instruction set, with ATH_ISA defined, after its vectors (int8_vector.h)
// and
//   kMostBlocks, kMostPixels, kBytes: Code::blocks, pixels and bytes
//   Words: a word of w of each channel
//   with_products(): a sum and the products of the values of two words, in each lane

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "kernels/cpu/int8_tiles.h"

namespace athanor::cpu::int8_tiles::ATH_ISA {
namespace {

constexpr int kParts = static_cast<int>(kLanes) / kFloats;  ///< vectors of a block
constexpr std::int64_t kLineWords = 16;                     ///< of a line of the cache

/// Pixel i is at i steps. (Few multiples of a step in registers, which addresses double or quadruple.)
struct Steps {
  std::int64_t one, three, five;
  std::int64_t of(int pixel) const {
    return pixel == 3 ? three : pixel == 5 ? five : pixel == 6 ? 2 * three : pixel * one;
  }
};

ATH_TARGET inline Ints broadcast(const std::byte* word) {
  std::int32_t value = 0;
  std::memcpy(&value, word, sizeof value);
  return all_ints(value);
}

/// `count` elements, at most kMost: if so many, by a copy of known size.
template <int kMost> inline void copy_some(const auto* from, std::int64_t count, auto* to) {
  if (count == kMost) return void(std::memcpy(to, from, kMost * sizeof *to));
  std::copy_n(from, count, to);
}

/// `sums`: [run][pixel][channel].
template <int kPixels, int kVectors> ATH_TARGET inline void store_real(const Tile& t, const Ints* sums) {
  constexpr int kChannels = kVectors * kFloats;
  const Finish& f = *t.finish;
  for (int run = 0; run < 2; ++run) {
    float* const y = static_cast<float*>(t.run[run].y);
    for (std::int64_t i = t.run[run].first; i < kPixels; ++i) {
      float results[kChannels];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        store(results + v * kFloats,
              as_floats(sums[(run * kPixels + i) * kVectors + v]) * load(f.multiplier + v * kFloats));
      copy_some<kChannels>(results, f.channels, y + i * f.next);
    }
  }
}

/// As VectorRounding takes vectors: kRounded at a time.
constexpr int whole_rounds(int count) {
  return (count + kRounded - 1) / kRounded * kRounded;
}

/// `sums`: [run][pixel][channel] and what makes whole_rounds().
template <int kPixels, int kVectors> ATH_TARGET inline void store_rounded(const Tile& t, const Ints* sums) {
  constexpr int kChannels = kVectors * kFloats, kCount = 2 * kPixels * kVectors;
  static_assert(kRounded % kVectors == 0);
  const Finish& f = *t.finish;
  // Copies: for all that the compiler knows, a byte that is stored is one of `f`.
  const std::int64_t channels = f.channels, next = f.next;
  alignas(64) std::uint8_t bytes[whole_rounds(kCount) * kFloats];  // of the residual, then of y
  const bool adds = t.run[0].residual != nullptr;
  if (adds) {
    std::fill_n(bytes, sizeof bytes, std::uint8_t{0});
    for (int run = 0; run < 2; ++run)
      for (int i = 0; i < kPixels; ++i)
        copy_some<kChannels>(t.run[run].residual + i * next, channels,
                             bytes + (run * kPixels + i) * kChannels);
  }
  const VectorRounding round(f.rounding);
  Floats multiplier[kVectors];
  for (int v = 0; v < kVectors; ++v) multiplier[v] = load(f.multiplier + v * kFloats);
  const Floats residual_scale = all(f.residual_scale);
  const Ints minus_zero = all_ints(-f.residual_zero);
#pragma GCC unroll 1
  for (int begin = 0; begin < kCount; begin += kRounded) {
    Floats value[kRounded];
#pragma GCC unroll 4
    for (int v = 0; v < kRounded; ++v) value[v] = as_floats(sums[begin + v]) * multiplier[v % kVectors];
    if (adds) {
#pragma GCC unroll 4
      for (int v = 0; v < kRounded; ++v) {
        const Ints distance = sum_of(widened(load_bytes(bytes + (begin + v) * kFloats)), minus_zero);
        value[v] = value[v] + residual_scale * as_floats(distance);
      }
    }
    round(value, bytes + begin * kFloats);
  }
  for (int run = 0; run < 2; ++run) {
    auto* const y = static_cast<std::uint8_t*>(t.run[run].y);
    for (std::int64_t i = t.run[run].first; i < kPixels; ++i)
      copy_some<kChannels>(bytes + (run * kPixels + i) * kChannels, channels, y + i * next);
  }
}

/// Leaves [run][pixel][channel]. A function of its own: what else needs registers would not leave enough for
/// the sums.
template <int kPixels, int kBlocks>
[[gnu::noinline]] ATH_TARGET void add_products(const Tile& t, Ints* result) {
  constexpr int kVectors = kBlocks * kParts;
  Ints sums[2][kPixels][kVectors];
#pragma GCC unroll 2
  for (int run = 0; run < 2; ++run)
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[run][i][v] = load_ints(t.finish->bias + v * kFloats);
  const Steps steps{t.step, 3 * t.step, 5 * t.step};
  const std::byte* w = t.w;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (std::int64_t s = 0; s < t.pieces; ++s) {
      const std::int64_t at = r * t.row_step + s * t.piece_step;
      const std::byte *x0 = t.run[0].x + at, *x1 = t.run[1].x + at;
      for (std::int64_t left = t.words; left > 0; left -= kLineWords) {
#pragma GCC unroll 8
        for (int i = 0; i < kPixels; ++i) {
          __builtin_prefetch(x0 + t.ahead + steps.of(i));
          __builtin_prefetch(x1 + t.ahead + steps.of(i));
        }
        for (std::int64_t word = std::min(left, kLineWords); word > 0; --word) {
          Words tap[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) tap[v] = load_ints(w + v * kFloats * 4);
#pragma GCC unroll 2
          for (int run = 0; run < 2; ++run) {
#pragma GCC unroll 8
            for (int i = 0; i < kPixels; ++i) {
              const auto value = broadcast((run == 0 ? x0 : x1) + steps.of(i));
#pragma GCC unroll 4
              for (int v = 0; v < kVectors; ++v)
                sums[run][i][v] = with_products(sums[run][i][v], value, tap[v]);
            }
          }
          w += kBlocks * kLanes * 4;
          x0 += 4, x1 += 4;
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int run = 0; run < 2; ++run)
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) result[(run * kPixels + i) * kVectors + v] = sums[run][i][v];
}

template <int kPixels, int kBlocks> ATH_TARGET void tile(const Tile& t) {
  constexpr int kVectors = kBlocks * kParts, kCount = 2 * kPixels * kVectors;
  Ints sums[whole_rounds(kCount)];
  add_products<kPixels, kBlocks>(t, sums);
  if (!t.finish->rounds) return store_real<kPixels, kVectors>(t, sums);
  std::fill(sums + kCount, std::end(sums), all_ints(0));
  store_rounded<kPixels, kVectors>(t, sums);
}

constexpr auto kTiles = []<int... kOf>(std::integer_sequence<int, kOf...>) {
  return std::array<void (*)(const Tile&), sizeof...(kOf)>{
      tile<kOf % kMostPixels + 1, kOf / kMostPixels + 1>...};
}
(std::make_integer_sequence<int, kMostBlocks * kMostPixels>());

}  // namespace

const Code kCode{kBytes, kMostBlocks, kMostPixels, kTiles.data()};

}  // namespace athanor::cpu::int8_tiles::ATH_ISA
