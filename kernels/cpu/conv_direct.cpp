#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/interleave.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

// Direct convolution for AVX-512, for layers where oneDNN is slow: few input or output channels. An image is
// first copied into a frame of zeros and widened to f32, so that no inner loop tests for the border. Sums
// then stay in registers over all taps, in one of two ways:
//   channels: a vector is 16 output channels of one pixel; a tap broadcasts an input value.
//   pixels:   a vector is 16 adjacent pixels of one output channel; a tap broadcasts a weight. For fewer
//             output channels than vector lanes; the frame is planar, C x H x W.
// Every sum has its taps in the same order, one fused multiply-add each. Bias and activation are applied to a
// tile's sums in f32; only loads and stores depend on the dtype.

namespace athanor::cpu {

#if defined(__x86_64__) && defined(__GNUC__)

namespace {

constexpr std::int64_t kLanes = 16;

// Compiles f() for AVX-512 only; callers have checked for it.
template <class F> void on_avx512(F&& f) {
#if defined(__clang__) || defined(ATHANOR_ONE_ISA)
  f();
#else
  run_avx512(f);
#endif
}

// The frame of an input image: its pixels, the padding, and what the last tap reads beyond them.
std::int64_t frame_h(const ConvSize& z) {
  return std::max(z.h + z.padding_h, (z.p - 1) * z.stride_h + (z.r - 1) * z.dilation_h + 1);
}
std::int64_t frame_w(const ConvSize& z) {
  return std::max(z.w + z.padding_w, (z.q - 1) * z.stride_w + (z.s - 1) * z.dilation_w + 1);
}

template <class T>
float weight_of(const ConvSize& z, const T* w, std::int64_t k, std::int64_t r, std::int64_t s,
                std::int64_t c) {
  return static_cast<float>(w[((k * z.r + r) * z.s + s) * z.c + c]);
}

/// sums[row][j] = activation(sums[row][j] + bias[j]) for j < width; bias may be null. Null if only a bias is
/// to be added, which storing does as well.
using Finish = void (*)(float* sums, std::int64_t rows, std::int64_t width, const float* bias);

template <class Op> void finish(float* sums, std::int64_t rows, std::int64_t width, const float* bias) {
  on_avx512([&] {
    for (std::int64_t row = 0; row < rows; ++row, sums += width) {
      if (bias) {
        for (std::int64_t j = 0; j < width; ++j) sums[j] = Op::forward(sums[j] + bias[j]);
      } else {
        for (std::int64_t j = 0; j < width; ++j) sums[j] = Op::forward(sums[j]);
      }
    }
  });
}

Finish finish_of(Activation activation) {
  Finish found = nullptr;
  dispatch_fused(activation, [&]<class Op>() {
    if constexpr (!std::is_same_v<Op, kernels::Identity>) found = finish<Op>;
  });
  return found;
}

// Channels -------------------------------------------------------------------------------------------------

/// The inputs and sums of one tile of pixels.
struct Tile {
  const float* x;     ///< first tap of the first pixel
  const float* w;     ///< [rows, runs, run, vectors * 16]
  std::int64_t step;  ///< between adjacent pixels, in floats
  std::int64_t rows, row_step, runs, run_step, run;
};

// Sums of 4 kQuads pixels and 16 kVectors channels, left in `sums` as [pixel][channel].
template <int kQuads, int kVectors> ATH_AVX512 void channel_tile(const Tile& t, float* sums) {
  __m512 total[kQuads * 4][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQuads * 4; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) total[i][v] = _mm512_setzero_ps();
  const float* w = t.w;
  const std::int64_t step = t.step, step3 = 3 * t.step;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (std::int64_t s = 0; s < t.runs; ++s) {
      const float* x0 = t.x + r * t.row_step + s * t.run_step;
      const float* x1 = x0 + 4 * step;
      const float* x2 = x1 + 4 * step;
      const float* x3 = x2 + 4 * step;
      for (std::int64_t c = 0; c < t.run; ++c) {
        __m512 tap[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) tap[v] = _mm512_loadu_ps(w + v * kLanes);
#pragma GCC unroll 4
        for (int quad = 0; quad < kQuads; ++quad) {
          const float* x = quad == 0 ? x0 : quad == 1 ? x1 : quad == 2 ? x2 : x3;
          const __m512 a = _mm512_set1_ps(x[0]), b = _mm512_set1_ps(x[step]), d = _mm512_set1_ps(x[2 * step]),
                       e = _mm512_set1_ps(x[step3]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            total[quad * 4][v] = _mm512_fmadd_ps(a, tap[v], total[quad * 4][v]);
            total[quad * 4 + 1][v] = _mm512_fmadd_ps(b, tap[v], total[quad * 4 + 1][v]);
            total[quad * 4 + 2][v] = _mm512_fmadd_ps(d, tap[v], total[quad * 4 + 2][v]);
            total[quad * 4 + 3][v] = _mm512_fmadd_ps(e, tap[v], total[quad * 4 + 3][v]);
          }
        }
        w += kVectors * kLanes;
        ++x0, ++x1, ++x2, ++x3;
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQuads * 4; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + (i * kVectors + v) * kLanes, total[i][v]);
}

using ChannelTile = void (*)(const Tile&, float*);

struct ChannelPlan {
  std::int64_t vectors, quads;
  ChannelTile tile;
};

// The tile that wastes the fewest pixels at the end of a row; the larger of equal ones.
ChannelPlan plan_channels(std::int64_t k, std::int64_t q) {
  static constexpr ChannelTile kOne[] = {channel_tile<1, 1>, channel_tile<2, 1>, channel_tile<3, 1>,
                                         channel_tile<4, 1>};
  static constexpr ChannelTile kTwo[] = {channel_tile<1, 2>, channel_tile<2, 2>, channel_tile<3, 2>};
  const bool two = k > kLanes;
  std::int64_t best = 1, waste = q + 16;
  for (std::int64_t quads = 1; quads <= (two ? 3 : 4); ++quads) {
    const std::int64_t tiles = (q + 4 * quads - 1) / (4 * quads), computed = tiles * 4 * quads;
    const std::int64_t cost = computed + tiles;  // a tile has a fixed overhead
    if (cost <= waste) best = quads, waste = cost;
  }
  return {two ? 2 : 1, best, (two ? kTwo : kOne)[best - 1]};
}

// Copies an image into its frame of zeros, widened. The border was cleared before.
template <class T> void fill_frame(const ConvSize& z, const T* image, float* frame) {
  const std::int64_t row = z.w * z.c, pitch = frame_w(z) * z.c;
  for (std::int64_t h = 0; h < z.h; ++h) {
    float* to = frame + (h + z.padding_h) * pitch + z.padding_w * z.c;
    const T* from = image + h * row;
    for (std::int64_t i = 0; i < row; ++i) to[i] = static_cast<float>(from[i]);
  }
}

// y[i][k] = sums[i][k] + bias[k] for the first of a tile's pixels and channels; bias may be null.
template <class T>
void store_channels(const float* sums, std::int64_t pixels, std::int64_t block, std::int64_t channels,
                    const float* bias, std::int64_t pitch, T* y) {
  on_avx512([&] {
    for (std::int64_t i = 0; i < pixels; ++i) {
      const float* from = sums + i * block;
      if (bias) {
        for (std::int64_t k = 0; k < channels; ++k) y[i * pitch + k] = T(from[k] + bias[k]);
      } else {
        for (std::int64_t k = 0; k < channels; ++k) y[i * pitch + k] = T(from[k]);
      }
    }
  });
}

template <class T>
void run_channels(CpuContext& context, const ConvSize& z, Finish finish, const T* x, const T* w,
                  const T* bias, T* y) {
  const ChannelPlan plan = plan_channels(z.k, z.q);
  const std::int64_t block = plan.vectors * kLanes, blocks = (z.k + block - 1) / block;
  const std::int64_t depth = z.r * z.s * z.c, pixels = plan.quads * 4;
  const std::int64_t pitch = frame_w(z) * z.c;
  // Tiles at the end of the last row read beyond it.
  const std::int64_t frame = (frame_h(z) * pitch + 16 * z.stride_w * z.c + kLanes - 1) / kLanes * kLanes;
  const std::int64_t slots = std::min<std::int64_t>(threads_for(context, z.work()), z.n);
  const std::int64_t weights = blocks * depth * block, packed_size = weights + blocks * block;
  const Scratch scratch =
      context.scratch(static_cast<std::size_t>(packed_size + slots * frame) * sizeof(float));
  float* const packed = scratch.as<float>();
  float* const wide_bias = packed + weights;
  for (std::int64_t k = 0; bias && k < blocks * block; ++k)
    wide_bias[k] = k < z.k ? static_cast<float>(bias[k]) : 0.0f;
  parallel_for(context, blocks * block, std::max<std::int64_t>(block, kGrain / depth / block * block),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t k = begin; k < end; ++k) {
                   float* to = packed + k / block * depth * block + k % block;
                   for (std::int64_t r = 0; r < z.r; ++r)
                     for (std::int64_t s = 0; s < z.s; ++s)
                       for (std::int64_t c = 0; c < z.c; ++c, to += block)
                         *to = k < z.k ? weight_of(z, w, k, r, s, c) : 0.0f;
                 }
               });
  const bool merged = z.dilation_w == 1;  // adjacent taps of a row are then contiguous
  parallel_for(context, slots, 1, [&](std::int64_t first_slot, std::int64_t last_slot) {
    for (std::int64_t slot = first_slot; slot < last_slot; ++slot) {
      float* const image = packed + packed_size + slot * frame;
      std::fill(image, image + frame, 0.0f);
      alignas(64) float sums[16 * 2 * kLanes];
      for (std::int64_t n = slot * z.n / slots; n < (slot + 1) * z.n / slots; ++n) {
        on_avx512([&] { fill_frame(z, x + n * z.h * z.w * z.c, image); });
        for (std::int64_t b = 0; b < blocks; ++b) {
          const std::int64_t channels = std::min(block, z.k - b * block);
          for (std::int64_t p = 0; p < z.p; ++p) {
            for (std::int64_t q = 0; q < z.q; q += pixels) {
              plan.tile({image + p * z.stride_h * pitch + q * z.stride_w * z.c, packed + b * depth * block,
                         z.stride_w * z.c, z.r, z.dilation_h * pitch, merged ? 1 : z.s, z.dilation_w * z.c,
                         merged ? z.s * z.c : z.c},
                        sums);
              const float* offset = bias ? wide_bias + b * block : nullptr;
              if (finish) finish(sums, pixels, block, offset);
              store_channels(sums, std::min(pixels, z.q - q), block, channels, finish ? nullptr : offset, z.k,
                             y + ((n * z.p + p) * z.q + q) * z.k + b * block);
            }
          }
        }
      }
    }
  });
}

// Pixels ---------------------------------------------------------------------------------------------------

constexpr int kSpans = 3;  // vectors of pixels per tile

// Sums of kSpans spans of 16 pixels and kChannels output channels, left in `sums` as [span][channel][pixel].
template <int kChannels>
ATH_AVX512 void pixel_tile(const ConvSize& z, const float* frame, std::int64_t plane, std::int64_t pitch,
                           const std::int64_t* spans, const float* w, float* sums) {
  __m512 total[kSpans][kChannels];
#pragma GCC unroll 4
  for (int i = 0; i < kSpans; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < kChannels; ++k) total[i][k] = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < z.c; ++c) {
    for (std::int64_t r = 0; r < z.r; ++r) {
      const float* row = frame + c * plane + r * z.dilation_h * pitch;
      for (std::int64_t s = 0; s < z.s; ++s, row += z.dilation_w, w += kChannels) {
        __m512 x[kSpans];
#pragma GCC unroll 4
        for (int i = 0; i < kSpans; ++i) x[i] = _mm512_loadu_ps(row + spans[i]);
#pragma GCC unroll 8
        for (int k = 0; k < kChannels; ++k) {
          const __m512 tap = _mm512_set1_ps(w[k]);
#pragma GCC unroll 4
          for (int i = 0; i < kSpans; ++i) total[i][k] = _mm512_fmadd_ps(x[i], tap, total[i][k]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kSpans; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < kChannels; ++k) _mm512_storeu_ps(sums + (i * kChannels + k) * kLanes, total[i][k]);
}

template <class T> void fill_planes(const ConvSize& z, const T* image, float* planes) {
  const std::int64_t pitch = frame_w(z), plane = frame_h(z) * pitch;
  for (std::int64_t h = 0; h < z.h; ++h) {
    float* to = planes + (h + z.padding_h) * pitch + z.padding_w;
    const T* from = image + h * z.w * z.c;
    for (std::int64_t c = 0; c < z.c; ++c)
      for (std::int64_t i = 0; i < z.w; ++i) to[c * plane + i] = static_cast<float>(from[i * z.c + c]);
  }
}

using PixelTile = void (*)(const ConvSize&, const float*, std::int64_t, std::int64_t, const std::int64_t*,
                           const float*, float*);

/// The code for a number of output channels.
template <class T> struct PixelPlan {
  PixelTile tile;
  /// y of one image [p, q, channel] from `sums` as [span][channel][pixel], plus bias unless null; `row` is
  /// the distance of two rows in pixels.
  void (*store)(const ConvSize& z, const float* sums, std::int64_t row, const float* bias, T* y);
};

/// Transposes 16 pixels from [channel][pixel] to [pixel][channel] and writes the first `count` floats, plus
/// bias, in the same layout, or null.
template <int kChannels>
ATH_AVX512 void interleave(const float* from, const float* bias, std::int64_t count, float* to) {
  __m512 channel[kChannels];
#pragma GCC unroll 8
  for (int k = 0; k < kChannels; ++k) {
    channel[k] = _mm512_loadu_ps(from + k * kLanes);
    if (bias) channel[k] += _mm512_loadu_ps(bias + k * kLanes);
  }
  store_interleaved<kChannels>(channel, count, to);
}

template <int kChannels, class T>
ATH_AVX512 void store_pixels(const ConvSize& z, const float* sums, std::int64_t row, const float* bias,
                             T* y) {
  alignas(64) float mixed[kLanes * kChannels];
  for (std::int64_t p = 0; p < z.p; ++p) {
    T* const to = y + p * z.q * kChannels;
    if (kChannels == 1) {  // no transpose needed
      const float* const from = sums + p * row;
      for (std::int64_t q = 0; q < z.q; ++q) to[q] = T(bias ? from[q] + bias[0] : from[q]);
      continue;
    }
    for (std::int64_t q = 0, pixels = 0; q < z.q; q += pixels) {  // to the end of a span, or of the row
      const std::int64_t flat = p * row + q, lane = flat % kLanes;
      pixels = std::min(z.q - q, kLanes - lane);
      const float* const span = sums + flat / kLanes * kLanes * kChannels;
      if constexpr (std::is_same_v<T, float>) {
        if (lane == 0) {
          interleave<kChannels>(span, bias, pixels * kChannels, to + q * kChannels);
          continue;
        }
      }
      interleave<kChannels>(span, bias, kLanes * kChannels, mixed);
      for (std::int64_t i = 0; i < pixels * kChannels; ++i)
        to[q * kChannels + i] = T(mixed[lane * kChannels + i]);
    }
  }
}

template <class T> PixelPlan<T> plan_pixels(std::int64_t channels) {
  static constexpr PixelPlan<T> kPlans[] = {
      {pixel_tile<1>, store_pixels<1, T>}, {pixel_tile<2>, store_pixels<2, T>},
      {pixel_tile<3>, store_pixels<3, T>}, {pixel_tile<4>, store_pixels<4, T>},
      {pixel_tile<5>, store_pixels<5, T>}, {pixel_tile<6>, store_pixels<6, T>},
      {pixel_tile<7>, store_pixels<7, T>}, {pixel_tile<8>, store_pixels<8, T>}};
  return kPlans[channels - 1];
}

template <class T>
void run_pixels(CpuContext& context, const ConvSize& z, Finish finish, const T* x, const T* w, const T* bias,
                T* y) {
  const PixelPlan<T> plan = plan_pixels<T>(z.k);
  const std::int64_t pitch = frame_w(z), plane = frame_h(z) * pitch;
  // If rows are contiguous in the frame, spans are too: one may cross the end of an output row, and its
  // excess results are dropped.
  const std::int64_t run = (z.p - 1) * pitch * z.stride_h + z.q;
  const bool whole = z.stride_h == 1;  // the image's pixels as one run, else row by row
  const std::int64_t per_run = ((whole ? run : z.q) + kLanes - 1) / kLanes,
                     spans = whole ? per_run : per_run * z.p;
  const std::int64_t frame = (z.c * plane + kLanes + kLanes - 1) / kLanes * kLanes;
  const std::int64_t slots = std::min<std::int64_t>(threads_for(context, z.work()), z.n);
  const std::int64_t block = z.k * kLanes;  // sums of a span
  const std::int64_t weights = (z.r * z.s * z.c * z.k + kLanes - 1) / kLanes * kLanes,
                     packed_size = weights + block;
  const std::int64_t result = (spans + kSpans) * block;
  const Scratch scratch =
      context.scratch(static_cast<std::size_t>(packed_size + slots * (frame + result)) * sizeof(float));
  float* const packed = scratch.as<float>();
  float* next = packed;
  for (std::int64_t c = 0; c < z.c; ++c)
    for (std::int64_t r = 0; r < z.r; ++r)
      for (std::int64_t s = 0; s < z.s; ++s)
        for (std::int64_t k = 0; k < z.k; ++k) *next++ = weight_of(z, w, k, r, s, c);
  float* const wide_bias = bias ? packed + weights : nullptr;
  for (std::int64_t i = 0; bias && i < block; ++i) wide_bias[i] = static_cast<float>(bias[i / kLanes]);

  parallel_for(context, slots, 1, [&](std::int64_t first_slot, std::int64_t last_slot) {
    for (std::int64_t slot = first_slot; slot < last_slot; ++slot) {
      float* const image = packed + packed_size + slot * (frame + result);
      float* const sums = image + frame;
      std::fill(image, image + frame, 0.0f);
      for (std::int64_t n = slot * z.n / slots; n < (slot + 1) * z.n / slots; ++n) {
        on_avx512([&] { fill_planes(z, x + n * z.h * z.w * z.c, image); });
        for (std::int64_t span = 0; span < spans; span += kSpans) {
          std::int64_t at[kSpans];
          for (int i = 0; i < kSpans; ++i) {
            const std::int64_t one = std::min(span + i, spans - 1);
            at[i] = whole ? one * kLanes : one / per_run * z.stride_h * pitch + one % per_run * kLanes;
          }
          plan.tile(z, image, plane, pitch, at, packed, sums + span * block);
          if (finish) finish(sums + span * block, kSpans, block, wide_bias);
        }
        plan.store(z, sums, whole ? pitch : per_run * kLanes, finish ? nullptr : wide_bias,
                   y + n * z.p * z.q * z.k);
      }
    }
  });
}

}  // namespace

bool conv_direct_fits(const ConvSize& z) {
  return has_avx512() && z.groups == 1;
}

template <class T>
void conv_forward_direct(CpuContext& context, const ConvSize& z, Activation activation, const T* x,
                         const T* w, const T* bias, T* y) {
  const Finish finish = finish_of(activation);
  if (z.stride_w == 1 && z.k <= 8) return run_pixels(context, z, finish, x, w, bias, y);
  run_channels(context, z, finish, x, w, bias, y);
}

#else

bool conv_direct_fits(const ConvSize&) {
  return false;
}
template <class T>
void conv_forward_direct(CpuContext& context, const ConvSize& z, Activation activation, const T* x,
                         const T* w, const T* bias, T* y) {
  conv_forward_eigen(context, z, activation, x, w, bias, y);
}

#endif

template void conv_forward_direct(CpuContext&, const ConvSize&, Activation, const float*, const float*,
                                  const float*, float*);
template void conv_forward_direct(CpuContext&, const ConvSize&, Activation, const Half*, const Half*,
                                  const Half*, Half*);
template void conv_forward_direct(CpuContext&, const ConvSize&, Activation, const BFloat16*, const BFloat16*,
                                  const BFloat16*, BFloat16*);

}  // namespace athanor::cpu
