// No #pragma once: included once per instruction set, with ATH_ISA defined (vector.h).

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/conv_tiles.h"
#include "kernels/cpu/vector.h"

namespace athanor::cpu::conv_tiles::ATH_ISA {
namespace {

using namespace athanor::cpu::ATH_ISA;

// Sizes of tiles, such that sums, factors and a broadcast fit in 16 registers of AVX2 or 32 of AVX-512.
constexpr bool kIsAvx512 = kFloats == 16;
constexpr int kSpans = kIsAvx512 ? 3 : 1, kSpanChannels = kIsAvx512 ? 8 : 6, kMaxPooled = kIsAvx512 ? 6 : 1,
              kPooledChannels = kIsAvx512 ? 6 : 3, kMaxPatch = kIsAvx512 ? 12 : 3,
              kWeightSums = kIsAvx512 ? 24 : 12;
/// Pixels and blocks of 16 channels.
struct ChannelTileSize {
  int pixels, blocks;
};
constexpr auto kChannelTiles = [] {
  if constexpr (kIsAvx512)
    return std::to_array<ChannelTileSize>({{4, 1}, {8, 1}, {12, 1}, {16, 1}, {4, 2}, {8, 2}, {12, 2}});
  else
    return std::to_array<ChannelTileSize>({{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}});
}();

constexpr int kParts = kLanes / kFloats;  ///< vectors of a block of 16 floats

/// entry.operator()<1>(), <2>(), ... <kCount>().
template <int kCount, class F> constexpr auto table_of(const F& entry) {
  return [&]<int... kOf>(std::integer_sequence<int, kOf...>) {
    return std::array{entry.template operator()<kOf + 1>()...};
  }
  (std::make_integer_sequence<int, kCount>());
}

// Channels -------------------------------------------------------------------------------------------------

template <int kPixels, int kVectors> ATH_TARGET void channel_sums(const ChannelTile& t, float* sums) {
  Floats total[kPixels][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) total[i][v] = zero();
  const float* w = t.w;
  const std::int64_t step = t.step;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (std::int64_t s = 0; s < t.runs; ++s) {
      const float *x0 = t.x + r * t.row_step + s * t.run_step, *x1 = x0 + 4 * step, *x2 = x1 + 4 * step,
                  *x3 = x2 + 4 * step;
      for (std::int64_t c = 0; c < t.run; ++c) {
        Floats tap[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) tap[v] = load(w + v * kFloats);
#pragma GCC unroll 16
        for (int i = 0; i < kPixels; ++i) {
          const float* const x = i < 4 ? x0 : i < 8 ? x1 : i < 12 ? x2 : x3;
          const Floats value = all(x[i % 4 * step]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) total[i][v] = fused(value, tap[v], total[i][v]);
        }
        w += kVectors * kFloats;
        ++x0, ++x1, ++x2, ++x3;
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kPixels; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(sums + (i * kVectors + v) * kFloats, total[i][v]);
}

/// The tile that wastes the fewest pixels at the end of a row; the larger of equal ones.
ChannelCode channels(std::int64_t channels, std::int64_t row) {
  static constexpr auto kCodes = table_of<kChannelTiles.size()>([]<int kOf>() {
    constexpr auto kTile = kChannelTiles[kOf - 1];
    return ChannelCode{kTile.blocks * kLanes, kTile.pixels,
                       channel_sums<kTile.pixels, kTile.blocks * kParts>};
  });
  const bool one = channels <= kLanes || kCodes.back().block == kLanes;
  const ChannelCode* best = nullptr;
  std::int64_t least = 0;
  for (const ChannelCode& code : kCodes) {
    if ((code.block == kLanes) != one) continue;
    const std::int64_t tiles = (row + code.pixels - 1) / code.pixels;
    const std::int64_t cost = tiles * code.pixels + tiles;  // a tile has a fixed overhead
    if (!best || cost <= least) best = &code, least = cost;
  }
  return *best;
}

/// Pools kPairs pixels from two rows of twice as many.
template <int kPairs> ATH_TARGET void pooled_channels(const PooledChannels& t) {
  Floats top[2 * kPairs][kParts], bottom[2 * kPairs][kParts];
#pragma GCC unroll 12
  for (int i = 0; i < 2 * kPairs; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kParts; ++v) top[i][v] = bottom[i][v] = zero();
  const float* w = t.w;
  const std::int64_t step = t.step;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    const float *above = t.x + r * t.row, *below = above + t.row;
    for (std::int64_t i = 0; i < t.run; ++i, ++above, ++below, w += kLanes) {
      Floats tap[kParts];
#pragma GCC unroll 2
      for (int v = 0; v < kParts; ++v) tap[v] = load(w + v * kFloats);
#pragma GCC unroll 12
      for (int pixel = 0; pixel < 2 * kPairs; ++pixel) {
        const Floats a = all(above[pixel * step]), b = all(below[pixel * step]);
#pragma GCC unroll 2
        for (int v = 0; v < kParts; ++v) {
          top[pixel][v] = fused(a, tap[v], top[pixel][v]);
          bottom[pixel][v] = fused(b, tap[v], bottom[pixel][v]);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kParts; ++v) {
    const std::int64_t count = t.channels - v * kFloats;
    const Floats bias = t.bias ? load_first(t.bias + v * kFloats, count) : zero();
#pragma GCC unroll 6
    for (int i = 0; i < kPairs; ++i) {
      const Floats largest =
          larger(larger(top[2 * i][v], top[2 * i + 1][v]), larger(bottom[2 * i][v], bottom[2 * i + 1][v]));
      store_first(t.y + i * t.next + v * kFloats, count, larger(largest + bias, zero()));
    }
  }
}

// Pixels ---------------------------------------------------------------------------------------------------

/// Channels kFirst to kFirst + kCount - 1.
template <int kFirst, int kCount, int kChannels>
ATH_TARGET void some_pixel_sums(const PixelTile& t, float* sums) {
  Floats total[kSpans * kParts][kCount];
#pragma GCC unroll 4
  for (int i = 0; i < kSpans * kParts; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) total[i][k] = zero();
  const float* w = t.w + kFirst;
  for (std::int64_t c = 0; c < t.c; ++c) {
    for (std::int64_t r = 0; r < t.r; ++r) {
      const float* row = t.frame + c * t.plane + r * t.row_step;
      for (std::int64_t s = 0; s < t.s; ++s, row += t.step, w += kChannels) {
        Floats x[kSpans * kParts];
#pragma GCC unroll 4
        for (int i = 0; i < kSpans * kParts; ++i)
          x[i] = load(row + t.spans[i / kParts] + i % kParts * kFloats);
#pragma GCC unroll 8
        for (int k = 0; k < kCount; ++k) {
          const Floats tap = all(w[k]);
#pragma GCC unroll 4
          for (int i = 0; i < kSpans * kParts; ++i) total[i][k] = fused(x[i], tap, total[i][k]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kSpans * kParts; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k)
      store(sums + (i / kParts * kChannels + kFirst + k) * kLanes + i % kParts * kFloats, total[i][k]);
}
template <int kChannels> void pixel_sums(const PixelTile& t, float* sums) {
  if constexpr (kChannels <= kSpanChannels) {
    some_pixel_sums<0, kChannels, kChannels>(t, sums);
  } else {
    constexpr int kHalf = (kChannels + 1) / 2;
    some_pixel_sums<0, kHalf, kChannels>(t, sums);
    some_pixel_sums<kHalf, kChannels - kHalf, kChannels>(t, sums);
  }
}

template <int kChannels>
ATH_TARGET void interleave(const float* from, const float* bias, std::int64_t count, float* to) {
  Floats channel[kChannels][kParts];
#pragma GCC unroll 8
  for (int k = 0; k < kChannels; ++k)
#pragma GCC unroll 2
    for (int v = 0; v < kParts; ++v) {
      channel[k][v] = load(from + k * kLanes + v * kFloats);
      if (bias) channel[k][v] += load(bias + k * kLanes + v * kFloats);
    }
  store_interleaved<kChannels>(channel, count, to);
}

/// kCount channels from kFirst on, of the vectors of pixels in all parts of a block. A function of its own:
/// what else needs registers would not leave enough for the sums.
template <int kFirst, int kCount, int kChannels>
[[gnu::noinline]] ATH_TARGET void pool_channels(const PooledPixels& t, Floats (&channel)[kChannels][kParts]) {
  const std::int64_t half = t.half_row, row = 2 * half, columns = t.s;
  for (int part = 0; part < kParts; ++part) {
    Floats sums[4][kCount];  // top left, top right, bottom left, bottom right
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 6
      for (int k = 0; k < kCount; ++k) sums[i][k] = zero();
    const float *x = t.x + part * kFloats, *w = t.w + kFirst;
    for (std::int64_t c = 0; c < t.c; ++c, x += t.plane) {
      for (std::int64_t r = 0; r < t.r; ++r) {
        const float *left = x + r * row, *right = left + half;
        for (std::int64_t s = 0; s < columns; ++s, w += kChannels) {
          Floats tap[kCount];
#pragma GCC unroll 6
          for (int k = 0; k < kCount; ++k) tap[k] = all(w[k]);
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) {
            const Floats in = load((i % 2 == 0 ? left : right) + (i < 2 ? 0 : row));
#pragma GCC unroll 6
            for (int k = 0; k < kCount; ++k) sums[i][k] = fused(in, tap[k], sums[i][k]);
          }
          // The next tap's columns on the left are this one's on the right.
          const float* const next = left + 1;
          left = right, right = next;
        }
      }
    }
#pragma GCC unroll 6
    for (int k = 0; k < kCount; ++k) {
      const Floats largest = larger(larger(sums[0][k], sums[1][k]), larger(sums[2][k], sums[3][k]));
      const Floats offset = all(t.bias ? t.bias[kFirst + k] : 0.0f);
      channel[kFirst + k][part] = larger(largest + offset, zero());
    }
  }
}
template <int kFirst, int kChannels>
void pool_channels_from(const PooledPixels& t, Floats (&channel)[kChannels][kParts]) {
  constexpr int kLeft = kChannels - kFirst, kGroups = (kLeft + kPooledChannels - 1) / kPooledChannels;
  constexpr int kCount = (kLeft + kGroups - 1) / kGroups;  // similar numbers in all groups
  pool_channels<kFirst, kCount>(t, channel);
  if constexpr (kCount < kLeft) pool_channels_from<kFirst + kCount>(t, channel);
}
template <int kChannels> ATH_TARGET void pooled_pixels(const PooledPixels& t) {
  Floats channel[kChannels][kParts];
  pool_channels_from<0>(t, channel);
  store_interleaved<kChannels>(channel, t.pixels * kChannels, t.y);
}

// Patches --------------------------------------------------------------------------------------------------

/// Adds the sums of one pixel's patch to the frame.
template <int kCount>
ATH_TARGET inline void add_patch(const Patches& t, const Floats (&sums)[kCount * kParts], float* to) {
  std::int64_t row = 0, vector = 0;
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i) {
    const bool last = vector + 1 == t.vectors;
#pragma GCC unroll 2
    for (int v = 0; v < kParts; ++v)
      add_first(to + row + vector * kLanes + v * kFloats, (last ? t.last : kLanes) - v * kFloats,
                sums[i * kParts + v]);
    if (last) row += t.row_step;
    vector = last ? 0 : vector + 1;
  }
}
/// Two pixels at a time. Patches of adjacent pixels overlap, so they are half a row apart.
template <int kCount> ATH_TARGET void add_patches(const Patches& t) {
  const std::int64_t half = (t.pixels + 1) / 2;
  for (std::int64_t pixel = 0; pixel < half; ++pixel) {
    const bool both = pixel + half < t.pixels;
    const std::int64_t other = both ? pixel + half : pixel;
    const float *const dy0 = t.dy + pixel * t.k, *const dy1 = t.dy + other * t.k, *w = t.w;
    Floats sum0[kCount * kParts], sum1[kCount * kParts];
#pragma GCC unroll 12
    for (int i = 0; i < kCount * kParts; ++i) sum0[i] = sum1[i] = zero();
    for (std::int64_t k = 0; k < t.k; ++k, w += kCount * kLanes) {
      const Floats a = all(dy0[k]), b = all(dy1[k]);
#pragma GCC unroll 12
      for (int i = 0; i < kCount * kParts; ++i) {
        const Floats tap = load(w + i * kFloats);
        sum0[i] = fused(a, tap, sum0[i]);
        sum1[i] = fused(b, tap, sum1[i]);
      }
    }
    add_patch<kCount>(t, sum0, t.to + pixel * t.step);
    if (both) add_patch<kCount>(t, sum1, t.to + other * t.step);
  }
}

// Gradients of weights -------------------------------------------------------------------------------------

template <int kRows, int kTaps, int kVectors> ATH_TARGET void weight_sums(const WeightTile& t) {
  Floats total[kRows][kTaps][kVectors];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < kTaps; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        total[r][i][v] = load(t.sums + r * t.sums_row + (i * kVectors + v) * kFloats);
  const float* dy = t.dy;
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const float *x0 = t.x + row * t.row, *x1 = x0 + t.filter_row;
    for (std::int64_t column = 0; column < t.columns; ++column) {
      Floats gradient[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) gradient[v] = load(dy + v * kFloats);
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
        for (int i = 0; i < kTaps; ++i) {
          const Floats value = all((r == 0 ? x0 : x1)[i]);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) total[r][i][v] = fused(value, gradient[v], total[r][i][v]);
        }
      x0 += t.column, x1 += t.column, dy += t.channels;
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < kTaps; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        store(t.sums + r * t.sums_row + (i * kVectors + v) * kFloats, total[r][i][v]);
}

template <int kVectors> WeightCode weight_code(std::int64_t row) {
  constexpr int kMost = std::min(kWeightSums / kVectors, 16);
  static constexpr auto kOne = table_of<kMost>([]<int kTaps>() { return &weight_sums<1, kTaps, kVectors>; });
  static constexpr auto kTwo =
      table_of<kMost / 2>([]<int kTaps>() { return &weight_sums<2, kTaps, kVectors>; });
  const bool two = 2 * row <= kMost;
  return {kVectors * kFloats, two ? 2 : 1, two ? row : kMost, {kOne.data(), kTwo.data()}};
}
WeightCode weights(std::int64_t row, std::int64_t channels) {
  return channels <= kFloats ? weight_code<1>(row) : weight_code<kParts>(row);
}

/// Half a block after the other where a vector is half a block.
template <int kRows, int kTaps> ATH_TARGET void depthwise_sums(const DepthwiseTile& t) {
  for (int part = 0; part < kParts; ++part) {
    float* const sums = t.sums + part * kFloats;
    Floats total[kRows][kTaps];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < kTaps; ++i) total[r][i] = load(sums + r * t.sums_row + i * kLanes);
    const float* dy = t.dy + part * kFloats;
    for (std::int64_t row = 0; row < t.rows; ++row) {
      const float *x0 = t.x + part * kFloats + row * t.row, *x1 = x0 + t.filter_row, *x2 = x1 + t.filter_row;
      for (std::int64_t column = 0; column < t.columns; ++column) {
        const Floats gradient = load(dy);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
          for (int i = 0; i < kTaps; ++i)
            total[r][i] = fused(load((r == 0 ? x0 : r == 1 ? x1 : x2) + i * kLanes), gradient, total[r][i]);
        x0 += t.column, x1 += t.column, x2 += t.column, dy += kLanes;
      }
    }
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < kTaps; ++i) store(sums + r * t.sums_row + i * kLanes, total[r][i]);
  }
}

template <int kRows> constexpr auto depthwise_of_rows() {
  constexpr int kMost = std::min(kWeightSums / kRows, 8);
  return table_of<kMost>([]<int kTaps>() { return &depthwise_sums<kRows, kTaps>; });
}
DepthwiseCode depthwise(std::int64_t row) {
  static constexpr auto kOne = depthwise_of_rows<1>();
  static constexpr auto kTwo = depthwise_of_rows<2>();
  static constexpr auto kThree = depthwise_of_rows<3>();
  const std::int64_t tiles = (row + 7) / 8, taps = (row + tiles - 1) / tiles;
  return {std::min<std::int64_t>(kWeightSums / taps, 3), taps, {kOne.data(), kTwo.data(), kThree.data()}};
}

}  // namespace

const Code& code() {
  static constexpr auto kPooled = table_of<kMaxPooled>([]<int kPairs>() { return &pooled_channels<kPairs>; });
  static constexpr auto kPatches = table_of<kMaxPatch>([]<int kCount>() { return &add_patches<kCount>; });
  static constexpr Code kCode{
      .isa = kIsAvx512 ? "AVX-512" : "AVX2",
      .channels = channels,
      .spans = kSpans,
      .pixel_sums = {pixel_sums<1>, pixel_sums<2>, pixel_sums<3>, pixel_sums<4>, pixel_sums<5>, pixel_sums<6>,
                     pixel_sums<7>, pixel_sums<8>},
      .interleave = {interleave<1>, interleave<2>, interleave<3>, interleave<4>, interleave<5>, interleave<6>,
                     interleave<7>, interleave<8>},
      .max_pooled = kMaxPooled,
      .pooled_channels = kPooled.data(),
      .pooled_pixels = {pooled_pixels<1>, pooled_pixels<2>, pooled_pixels<3>, pooled_pixels<4>,
                        pooled_pixels<5>, pooled_pixels<6>},
      .max_patch = kMaxPatch,
      .add_patches = kPatches.data(),
      .weights = weights,
      .depthwise = depthwise,
  };
  return kCode;
}

}  // namespace athanor::cpu::conv_tiles::ATH_ISA
