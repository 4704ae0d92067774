#include <algorithm>
#include <memory>
#include <type_traits>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/conv_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/scratch.h"

// A convolution of few input channels, 2 x 2 max pooling and ReLU in one pass, as at the head of a small
// network: the results of the convolution stay in registers until pooled. In one of two ways, as in
// conv_direct.cpp:
//   channels: a block is 16 output channels of one pixel; a tap broadcasts an input value to two rows of
//             pixels. Without padding, the image is read in place.
//   pixels:   for up to 6 output channels. A block is 16 pixels of one channel, every other one of a row, so
//             that the maximum of two adjacent pixels is that of two vectors. So the frame of an input image
//             separates even and odd columns, channel by channel.
// Images and results of bf16 are widened and rounded image by image: it takes no longer than f32.
// A NaN among four results may be ignored.

namespace athanor::cpu {
namespace {

using conv_tiles::kLanes;

constexpr std::int64_t kMaxInputs = 8;

std::int64_t round_up(std::int64_t value, std::int64_t to) {
  return (value + to - 1) / to * to;
}

/// p and q are those of the pooled result.
struct Sizes : ConvSize {
  explicit Sizes(const PrimitiveKey& key) : ConvSize(conv_size(key)) { p /= 2, q /= 2; }

  bool by_pixels() const { return k <= conv_tiles::kMaxPooledChannels; }
  std::int64_t image() const { return h * w * c; }
  std::int64_t rows() const { return 2 * p + r - 1; }     // of a frame: all that windows read
  std::int64_t columns() const { return 2 * q + s - 1; }  // of it
};

/// Filters in the loops' layout: by pixels [C, R, S, K], by channels [K / 16, R, S, C, 16], with zeros after
/// the last channel.
class FilterBlocks final : public kernels::WeightLayout {
 public:
  explicit FilterBlocks(const Sizes& z) : z_(z) {}

  bool equals(const WeightLayout& other) const override {
    const auto* const same = dynamic_cast<const FilterBlocks*>(&other);
    return same && same->z_.k == z_.k && same->z_.c == z_.c && same->z_.r == z_.r && same->z_.s == z_.s;
  }
  std::size_t bytes() const override {
    const std::int64_t channels = z_.by_pixels() ? z_.k : round_up(z_.k, kLanes);
    return static_cast<std::size_t>(channels * z_.r * z_.s * z_.c) * sizeof(float);
  }
  void fill(const CpuContext&, const float* weights, void* to) const override {
    auto* const out = static_cast<float*>(to);
    std::fill(out, out + bytes() / sizeof(float), 0.0f);
    const std::int64_t taps = z_.r * z_.s;
    for (std::int64_t k = 0; k < z_.k; ++k)
      for (std::int64_t tap = 0; tap < taps; ++tap)
        for (std::int64_t c = 0; c < z_.c; ++c) {
          const std::int64_t at = z_.by_pixels()
                                      ? (c * taps + tap) * z_.k + k
                                      : ((k / kLanes * taps + tap) * z_.c + c) * kLanes + k % kLanes;
          out[at] = weights[(k * taps + tap) * z_.c + c];
        }
  }

 private:
  Sizes z_;
};

// Channels -------------------------------------------------------------------------------------------------

/// Copies an image into its frame of zeros.
template <class T> void fill_frame(const Sizes& z, const T* image, float* frame) {
  const std::int64_t rows = std::min(z.h, z.rows() - z.padding_h),
                     columns = std::min(z.w, z.columns() - z.padding_w);
  for (std::int64_t h = 0; h < rows; ++h) {
    const T* const from = image + h * z.w * z.c;
    float* const to = frame + ((h + z.padding_h) * z.columns() + z.padding_w) * z.c;
    for (std::int64_t i = 0; i < columns * z.c; ++i) to[i] = static_cast<float>(from[i]);
  }
}

void run_channels(const Sizes& z, const float* image, bool is_frame, const float* w, const float* bias,
                  float* y) {
  const conv_tiles::Code& code = conv_tiles::code();
  const std::int64_t row = (is_frame ? z.columns() : z.w) * z.c, run = z.s * z.c;
  const std::int64_t tiles = (z.q + code.max_pooled - 1) / code.max_pooled;  // of similar length
  for (std::int64_t k = 0; k < z.k; k += kLanes) {
    const std::int64_t channels = std::min(kLanes, z.k - k);
    for (std::int64_t p = 0; p < z.p; ++p) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t first = tile * z.q / tiles, pairs = (tile + 1) * z.q / tiles - first;
        code.pooled_channels[pairs - 1]({image + 2 * p * row + 2 * first * z.c, row, z.c, z.r, run,
                                         w + k * z.r * run, bias ? bias + k : nullptr, channels,
                                         y + (p * z.q + first) * z.k + k, z.k});
      }
    }
  }
}

// Pixels ---------------------------------------------------------------------------------------------------

/// Length in floats of the columns of one parity in a frame's row: tiles read whole vectors.
std::int64_t half_row(const Sizes& z) {
  return round_up(z.q, kLanes) + z.s / 2;
}

template <class T> void fill_halves(const Sizes& z, const T* image, float* frame) {
  const std::int64_t half = half_row(z), rows = std::min(z.h, z.rows() - z.padding_h);
  for (std::int64_t c = 0; c < z.c; ++c) {
    for (std::int64_t h = 0; h < rows; ++h) {
      const T* const from = image + h * z.w * z.c + c;
      for (std::int64_t parity = 0; parity < 2; ++parity) {
        float* const to = frame + ((c * z.rows() + h + z.padding_h) * 2 + parity) * half;
        // Column 2 i + parity of the frame is column 2 i + shift of the image.
        const std::int64_t shift = parity - z.padding_w, begin = shift < 0 ? (1 - shift) / 2 : 0;
        const std::int64_t end = std::min(half, (z.w - shift + 1) / 2);
        if (z.c == 1) {  // so that the loop vectorises
          for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[2 * i + shift]);
        } else {
          for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[(2 * i + shift) * z.c]);
        }
      }
    }
  }
}

void run_pixels(const Sizes& z, const float* frame, const float* w, const float* bias, float* y) {
  const std::int64_t half = half_row(z), row = 2 * half;
  for (std::int64_t p = 0; p < z.p; ++p)
    for (std::int64_t q = 0; q < z.q; q += kLanes)
      conv_tiles::code().pooled_pixels[z.k - 1]({frame + 2 * p * row + q, z.c, z.rows() * row, half, z.r, z.s,
                                                 w, bias, std::min(kLanes, z.q - q),
                                                 y + (p * z.q + q) * z.k});
}

// ----------------------------------------------------------------------------------------------------------

template <class T> class ConvPool final : public Primitive {
 public:
  explicit ConvPool(const PrimitiveKey& key)
      : z_(key), threads_(key.threads), layout_(std::make_shared<FilterBlocks>(z_)) {}

  void run(const CpuContext& context, const Operands& at) override {
    constexpr bool kWidens = !std::is_same_v<T, float>;
    const auto* const x = static_cast<const T*>(at.first);
    const auto* const w = static_cast<const float*>(at.second);
    const auto* const offsets = static_cast<const float*>(at.bias);
    auto* const y = static_cast<T*>(at.out);
    const bool framed = kWidens || z_.by_pixels() || z_.padding_h > 0 || z_.padding_w > 0;
    const std::int64_t frame = !framed          ? 0
                               : z_.by_pixels() ? z_.c * z_.rows() * 2 * half_row(z_)
                                                : z_.rows() * z_.columns() * z_.c;
    const std::int64_t pooled = z_.p * z_.q * z_.k, slots = std::min<std::int64_t>(threads_, z_.n),
                       own = frame + (kWidens ? pooled : 0);
    const Scratch scratch = context.scratch(static_cast<std::size_t>(slots * own) * sizeof(float));
    for_each_slot(context, slots, z_.n, [&](std::int64_t slot, const auto& each_piece) {
      float* const mine = scratch.as<float>() + slot * own;
      std::fill(mine, mine + frame, 0.0f);
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          const T* const image = x + n * z_.image();
          T* const result = y + n * pooled;
          const auto compute = [&](const float* unframed, float* to) {
            if (z_.by_pixels()) {
              vectorize([&] { fill_halves(z_, image, mine); });
              run_pixels(z_, mine, w, offsets, to);
            } else {
              if (framed) vectorize([&] { fill_frame(z_, image, mine); });
              run_channels(z_, framed ? mine : unframed, framed, w, offsets, to);
            }
          };
          if constexpr (kWidens) {
            float* const wide = mine + frame;
            compute(nullptr, wide);
            vectorize([&] {
              for (std::int64_t i = 0; i < pooled; ++i) result[i] = T(wide[i]);
            });
          } else {
            compute(image, result);
          }
        }
      });
    });
  }
  std::shared_ptr<const kernels::WeightLayout> layout() const override { return layout_; }

 private:
  Sizes z_;
  int threads_;
  std::shared_ptr<const kernels::WeightLayout> layout_;
};

bool fits(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_avx2() && (key.in == DType::f32 || key.in == DType::bf16) && key.fused.pooled &&
         key.fused.packed && z.stride_h == 1 && z.stride_w == 1 && z.dilation_h == 1 && z.dilation_w == 1 &&
         z.groups == 1 && z.c > 0 && z.c <= kMaxInputs && z.p > 1 && z.q > 1;
}
MadePrimitive make(const PrimitiveKey& key) {
  const char* const name =
      has_avx512() ? "convolution and pooling, AVX-512" : "convolution and pooling, AVX2";
  if (key.in == DType::bf16) return {std::make_unique<ConvPool<BFloat16>>(key), name};
  return {std::make_unique<ConvPool<float>>(key), name};
}

}  // namespace

extern const Implementation kConvPool{.name = "pooled",
                                      .fuses = {.packed = true, .pooled = true},
                                      .activations = kOnlyRelu,
                                      .fits = fits,
                                      .make = make};

}  // namespace athanor::cpu
