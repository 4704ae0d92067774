#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/conv_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/elementwise_ops.h"
#include "kernels/scratch.h"

// Direct convolution, for layers where oneDNN is slow: few input or output channels. An image is first copied
// into a frame of zeros and widened to f32, so that no inner loop tests for the border. Sums then stay in
// registers over all taps (conv_tiles.h), in one of two ways:
//   channels: a block is 16 output channels of one pixel; a tap broadcasts an input value.
//   pixels:   a block is 16 adjacent pixels of one output channel; a tap broadcasts a weight. For few output
//             channels; the frame is planar, C x H x W.
// Bias and activation are applied to a tile's sums in f32; only loads and stores depend on the dtype.

namespace athanor::cpu {
namespace {

using conv_tiles::kLanes;

constexpr std::int64_t kMaxPixels = 16, kMaxBlock = 32;  ///< of a tile of channels, at most 32 vectors

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

/// sums[row][j] = relu(sums[row][j] + bias[j]) for j < width; bias may be null.
void apply_relu(float* sums, std::int64_t rows, std::int64_t width, const float* bias) {
  using Op = kernels::Relu;
  vectorize([&] {
    for (std::int64_t row = 0; row < rows; ++row, sums += width) {
      if (bias) {
        for (std::int64_t j = 0; j < width; ++j) sums[j] = Op::forward(sums[j] + bias[j]);
      } else {
        for (std::int64_t j = 0; j < width; ++j) sums[j] = Op::forward(sums[j]);
      }
    }
  });
}

// Channels -------------------------------------------------------------------------------------------------

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
  vectorize([&] {
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
void run_channels(const CpuContext& context, const ConvSize& z, bool relu, const T* x, const T* w,
                  const T* bias, T* y) {
  const conv_tiles::ChannelCode code = conv_tiles::code().channels(z.k, z.q);
  const std::int64_t block = code.block, blocks = (z.k + block - 1) / block;
  const std::int64_t depth = z.r * z.s * z.c, pixels = code.pixels;
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
  for_each_slot(context, slots, z.n, [&](std::int64_t slot, const auto& each_piece) {
    float* const image = packed + packed_size + slot * frame;
    std::fill(image, image + frame, 0.0f);
    alignas(64) float sums[kMaxPixels * kMaxBlock];
    each_piece([&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        vectorize([&] { fill_frame(z, x + n * z.h * z.w * z.c, image); });
        for (std::int64_t b = 0; b < blocks; ++b) {
          const std::int64_t channels = std::min(block, z.k - b * block);
          for (std::int64_t p = 0; p < z.p; ++p) {
            for (std::int64_t q = 0; q < z.q; q += pixels) {
              code.sums({image + p * z.stride_h * pitch + q * z.stride_w * z.c, packed + b * depth * block,
                         z.stride_w * z.c, z.r, z.dilation_h * pitch, merged ? 1 : z.s, z.dilation_w * z.c,
                         merged ? z.s * z.c : z.c},
                        sums);
              const float* offset = bias ? wide_bias + b * block : nullptr;
              if (relu) apply_relu(sums, pixels, block, offset);
              store_channels(sums, std::min(pixels, z.q - q), block, channels, relu ? nullptr : offset, z.k,
                             y + ((n * z.p + p) * z.q + q) * z.k + b * block);
            }
          }
        }
      }
    });
  });
}

// Pixels ---------------------------------------------------------------------------------------------------

template <class T> void fill_planes(const ConvSize& z, const T* image, float* planes) {
  const std::int64_t pitch = frame_w(z), plane = frame_h(z) * pitch;
  for (std::int64_t h = 0; h < z.h; ++h) {
    float* to = planes + (h + z.padding_h) * pitch + z.padding_w;
    const T* from = image + h * z.w * z.c;
    for (std::int64_t c = 0; c < z.c; ++c)
      for (std::int64_t i = 0; i < z.w; ++i) to[c * plane + i] = static_cast<float>(from[i * z.c + c]);
  }
}

/// y of one image [p, q, channel] from `sums` as [span][channel][pixel], plus bias unless null; `row` is the
/// distance of two rows in pixels.
template <class T>
void store_pixels(const ConvSize& z, const float* sums, std::int64_t row, const float* bias, T* y) {
  const auto interleave = conv_tiles::code().interleave[z.k - 1];
  alignas(64) float mixed[kLanes * conv_tiles::kMaxPixelChannels];
  for (std::int64_t p = 0; p < z.p; ++p) {
    T* const to = y + p * z.q * z.k;
    if (z.k == 1) {  // no transpose needed
      const float* const from = sums + p * row;
      for (std::int64_t q = 0; q < z.q; ++q) to[q] = T(bias ? from[q] + bias[0] : from[q]);
      continue;
    }
    for (std::int64_t q = 0, pixels = 0; q < z.q; q += pixels) {  // to the end of a span, or of the row
      const std::int64_t flat = p * row + q, lane = flat % kLanes;
      pixels = std::min(z.q - q, kLanes - lane);
      const float* const span = sums + flat / kLanes * kLanes * z.k;
      if constexpr (std::is_same_v<T, float>) {
        if (lane == 0) {
          interleave(span, bias, pixels * z.k, to + q * z.k);
          continue;
        }
      }
      interleave(span, bias, kLanes * z.k, mixed);
      for (std::int64_t i = 0; i < pixels * z.k; ++i) to[q * z.k + i] = T(mixed[lane * z.k + i]);
    }
  }
}

template <class T>
void run_pixels(const CpuContext& context, const ConvSize& z, bool relu, const T* x, const T* w,
                const T* bias, T* y) {
  const conv_tiles::Code& code = conv_tiles::code();
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
  const std::int64_t result = (spans + code.spans) * block;
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

  for_each_slot(context, slots, z.n, [&](std::int64_t slot, const auto& each_piece) {
    float* const image = packed + packed_size + slot * (frame + result);
    float* const sums = image + frame;
    std::fill(image, image + frame, 0.0f);
    each_piece([&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        vectorize([&] { fill_planes(z, x + n * z.h * z.w * z.c, image); });
        for (std::int64_t span = 0; span < spans; span += code.spans) {
          std::int64_t at[conv_tiles::kMaxSpans];
          for (int i = 0; i < code.spans; ++i) {
            const std::int64_t one = std::min(span + i, spans - 1);
            at[i] = whole ? one * kLanes : one / per_run * z.stride_h * pitch + one % per_run * kLanes;
          }
          code.pixel_sums[z.k - 1](
              {image, at, packed, z.c, plane, z.r, z.dilation_h * pitch, z.s, z.dilation_w},
              sums + span * block);
          if (relu) apply_relu(sums + span * block, code.spans, block, wide_bias);
        }
        store_pixels(z, sums, whole ? pitch : per_run * kLanes, relu ? nullptr : wide_bias,
                     y + n * z.p * z.q * z.k);
      }
    });
  });
}

// ----------------------------------------------------------------------------------------------------------

void run(const CpuContext& context, const PrimitiveKey& key, const Operands& at) {
  const ConvSize z = conv_size(key);
  dispatch_floating(key.in, "conv2d", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      const auto code =
          z.stride_w == 1 && z.k <= conv_tiles::kMaxPixelChannels ? run_pixels<T> : run_channels<T>;
      code(context, z, key.fused.activation == Activation::relu, static_cast<const T*>(at.first),
           static_cast<const T*>(at.second), static_cast<const T*>(at.bias), static_cast<T*>(at.out));
    }
  });
}

bool fits(const PrimitiveKey& key) {
  return has_avx2() && key.in != DType::f64 && conv_size(key).groups == 1;
}
MadePrimitive make(const PrimitiveKey& key) {
  return made_of(key, run);
}

std::string needs(const PrimitiveKey&) {
  return "the direct code needs AVX2, f32 or a half type and one group, or for the gradient of weights a "
         "filter "
         "for each channel; for its backward passes, no dilation along a row, and few input channels";
}

}  // namespace

extern const Implementation kConvDirect{
    .name = "direct", .fuses = {}, .activations = kOnlyRelu, .fits = fits, .make = make, .needs = needs};

}  // namespace athanor::cpu
