#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/conv_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/scratch.h"

// Backward-weights for few input or output channels. The gradients of some adjacent taps stay in registers
// over all pixels of an image: a block of channels of dy, times an input value for each tap. Images with
// padding, and half types, are first copied into a frame of zeros in f32.

namespace athanor::cpu {

extern const Implementation kConvDirect;

namespace {

/// Images are divided into so many parts, whose sums are added in order: by any number of threads alike.
constexpr std::int64_t kParts = 16;

/// What the loops read of one image, in f32.
template <class T> class Frames {
 public:
  explicit Frames(const ConvSize& z, std::int64_t block)
      : z_(z),
        copies_x_(!std::is_same_v<T, float> || z.padding_h > 0 || z.padding_w > 0),
        rows_(copies_x_ ? std::max(z.h + z.padding_h, (z.p - 1) * z.stride_h + (z.r - 1) * z.dilation_h + 1)
                        : z.h),
        columns_(copies_x_ ? std::max(z.w + z.padding_w, (z.q - 1) * z.stride_w + z.s) : z.w),
        slack_((z.k + block - 1) / block * block - z.k) {}

  std::int64_t pitch() const { return columns_ * z_.c; }
  std::int64_t floats() const { return image() + z_.p * z_.q * z_.k + slack_; }

  /// Clears the border, and what is read beyond the last channel.
  void clear(float* own) const { std::fill(own, own + floats(), 0.0f); }

  const float* x(const T* x, std::int64_t n, float* own) const {
    const T* const from = x + n * z_.h * z_.w * z_.c;
    if constexpr (std::is_same_v<T, float>) {
      if (!copies_x_) return from;
    }
    const std::int64_t row = z_.w * z_.c;
    vectorize([&] {
      for (std::int64_t h = 0; h < z_.h; ++h) {
        float* const to = own + (h + z_.padding_h) * pitch() + z_.padding_w * z_.c;
        for (std::int64_t i = 0; i < row; ++i) to[i] = static_cast<float>(from[h * row + i]);
      }
    });
    return own;
  }
  /// Where a block exceeds the channels, it reads what is behind them: the last images are copied.
  const float* dy(const T* dy, std::int64_t n, float* own) const {
    const std::int64_t size = z_.p * z_.q * z_.k;
    const T* const from = dy + n * size;
    if constexpr (std::is_same_v<T, float>) {
      if ((z_.n - 1 - n) * size >= slack_) return from;
    }
    float* const to = own + image();
    vectorize([&] {
      for (std::int64_t i = 0; i < size; ++i) to[i] = static_cast<float>(from[i]);
    });
    return to;
  }

 private:
  std::int64_t image() const { return copies_x_ ? rows_ * pitch() : 0; }

  const ConvSize& z_;
  bool copies_x_;
  std::int64_t rows_, columns_, slack_;
};

/// Adds one image's share to sums [K / block, R, S C, block].
void add_image(const ConvSize& z, const conv_tiles::WeightCode& code, const float* x, std::int64_t pitch,
               const float* dy, float* sums) {
  const std::int64_t run = z.s * z.c, tiles = (run + code.taps - 1) / code.taps;  // of similar length
  for (std::int64_t k = 0; k < z.k; k += code.block, sums += z.r * run * code.block) {
    for (std::int64_t r = 0; r < z.r; r += code.rows) {
      const std::int64_t rows = std::min(code.rows, z.r - r);
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t first = tile * run / tiles, taps = (tile + 1) * run / tiles - first;
        code.sums[rows - 1][taps - 1]({x + r * z.dilation_h * pitch + first, z.dilation_h * pitch, z.p,
                                       z.stride_h * pitch, z.q, z.stride_w * z.c, dy + k, z.k,
                                       sums + (r * run + first) * code.block, run * code.block});
      }
    }
  }
}

template <class T, class W>
void backward_weights(const CpuContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                      bool accumulate) {
  const std::int64_t taps = z.r * z.s * z.c;
  const conv_tiles::WeightCode code = conv_tiles::code().weights(z.s * z.c, z.k);
  const Frames<T> frames(z, code.block);
  const std::int64_t parts = std::min(kParts, z.n);
  const std::int64_t slots = std::min<std::int64_t>(threads_for(context, z.work()), parts);
  const std::int64_t size = (z.k + code.block - 1) / code.block * code.block * taps;
  const Scratch scratch =
      context.scratch(static_cast<std::size_t>(parts * size + slots * frames.floats()) * sizeof(float));
  float* const sums = scratch.as<float>();
  for_each_slot(context, slots, parts, [&](std::int64_t slot, const auto& each_piece) {
    float* const own = sums + parts * size + slot * frames.floats();
    frames.clear(own);
    each_piece([&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        float* const to = sums + part * size;
        std::fill(to, to + size, 0.0f);
        for (std::int64_t n = part * z.n / parts; n < (part + 1) * z.n / parts; ++n)
          add_image(z, code, frames.x(x, n, own), frames.pitch(), frames.dy(dy, n, own), to);
      }
    });
  });
  vectorize([&] {
    for (std::int64_t part = 1; part < parts; ++part)
      for (std::int64_t i = 0; i < size; ++i) sums[i] += sums[part * size + i];
  });
  for (std::int64_t k = 0; k < z.k; ++k) {
    const float* const from = sums + k / code.block * code.block * taps + k % code.block;
    W* const to = dw + k * taps;
    for (std::int64_t tap = 0; tap < taps; ++tap)
      to[tap] = W(accumulate ? static_cast<float>(to[tap]) + from[tap * code.block] : from[tap * code.block]);
  }
}

void run(const CpuContext& context, const PrimitiveKey& key, const Operands& at) {
  with_weight_gradient(key, at, [&](const auto* x, const auto* dy, auto* dw) {
    backward_weights(context, conv_size(key), x, dy, dw, key.fused.accumulate);
  });
}

bool fits(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_avx2() && key.in != DType::f64 && z.groups == 1 && z.dilation_w == 1;
}
MadePrimitive make(const PrimitiveKey& key) {
  return made_of(key, run);
}

}  // namespace

extern const Implementation kConvGradient{
    .name = "direct",
    .fuses = {.accumulate = true},
    .fits = fits,
    .make = make,
    .needs = [](const PrimitiveKey& key) { return kConvDirect.needs(key); }};

}  // namespace athanor::cpu
