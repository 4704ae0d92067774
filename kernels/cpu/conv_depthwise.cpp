#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/conv_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/scratch.h"

// Backward-weights where each channel has a filter of its own. Sixteen channels of an image are first copied
// into a frame of zeros, and those of dy beside it, both in f32. Then the gradients of some adjacent taps
// stay in registers over all pixels.

namespace athanor::cpu {

extern const Implementation kConvDirect;

namespace {

using conv_tiles::kLanes;

/// Images are divided into so many parts, whose sums are added in order: by any number of threads alike.
constexpr std::int64_t kParts = 16;

struct Frame {
  std::int64_t rows, columns;  ///< of x with the padding that some tap reads

  explicit Frame(const ConvSize& z)
      : rows(std::max(z.h + z.padding_h, (z.p - 1) * z.stride_h + (z.r - 1) * z.dilation_h + 1)),
        columns(std::max(z.w + z.padding_w, (z.q - 1) * z.stride_w + z.s)) {}
  std::int64_t pitch() const { return columns * kLanes; }
  std::int64_t floats() const { return rows * pitch(); }
};

/// `lanes` channels of `count` pixels, from an image of `channels`.
template <class T>
void copy_pixels(const T* from, std::int64_t channels, std::int64_t count, std::int64_t lanes, float* to) {
  if (lanes == kLanes) {
    for (std::int64_t i = 0; i < count; ++i, from += channels, to += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) to[lane] = static_cast<float>(from[lane]);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i, from += channels, to += kLanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) to[lane] = static_cast<float>(from[lane]);
}

/// Adds the share of one image and 16 channels to sums [R, S, 16].
void add_image(const ConvSize& z, const conv_tiles::DepthwiseCode& code, const Frame& frame, const float* x,
               const float* dy, float* sums) {
  const std::int64_t down = (z.r + code.rows - 1) / code.rows, across = (z.s + code.taps - 1) / code.taps;
  for (std::int64_t i = 0; i < down; ++i) {
    const std::int64_t r = i * z.r / down, rows = (i + 1) * z.r / down - r;  // of similar size
    for (std::int64_t j = 0; j < across; ++j) {
      const std::int64_t s = j * z.s / across, taps = (j + 1) * z.s / across - s;
      code.sums[rows - 1][taps - 1]({x + r * z.dilation_h * frame.pitch() + s * kLanes,
                                     z.dilation_h * frame.pitch(), z.p, z.stride_h * frame.pitch(), z.q,
                                     z.stride_w * kLanes, dy, sums + (r * z.s + s) * kLanes, z.s * kLanes});
    }
  }
}

template <class T, class W>
void backward_weights(const CpuContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                      bool accumulate) {
  const std::int64_t taps = z.r * z.s, blocks = (z.c + kLanes - 1) / kLanes, size = blocks * taps * kLanes;
  const conv_tiles::DepthwiseCode code = conv_tiles::code().depthwise(z.s);
  const Frame frame(z);
  const std::int64_t parts = std::min(kParts, z.n), tasks = parts * blocks, pixels = z.p * z.q;
  const std::int64_t slots = std::min<std::int64_t>(threads_for(context, z.work()), tasks);
  const std::int64_t own_size = frame.floats() + pixels * kLanes;
  const Scratch scratch =
      context.scratch(static_cast<std::size_t>(parts * size + slots * own_size) * sizeof(float));
  float* const sums = scratch.as<float>();
  for_each_slot(context, slots, tasks, [&](std::int64_t slot, const auto& each_piece) {
    float *const own = sums + parts * size + slot * own_size, *const own_dy = own + frame.floats();
    std::fill(own, own + own_size, 0.0f);
    each_piece([&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t part = task / blocks, first = task % blocks * kLanes,
                           lanes = std::min(kLanes, z.c - first);
        float* const to = sums + part * size + first * taps;
        std::fill(to, to + taps * kLanes, 0.0f);
        for (std::int64_t n = part * z.n / parts; n < (part + 1) * z.n / parts; ++n) {
          vectorize([&] {
            for (std::int64_t h = 0; h < z.h; ++h)
              copy_pixels(x + (n * z.h + h) * z.w * z.c + first, z.c, z.w, lanes,
                          own + (h + z.padding_h) * frame.pitch() + z.padding_w * kLanes);
            copy_pixels(dy + n * pixels * z.c + first, z.c, pixels, lanes, own_dy);
          });
          add_image(z, code, frame, own, own_dy, to);
        }
      }
    });
  });
  vectorize([&] {
    for (std::int64_t part = 1; part < parts; ++part)
      for (std::int64_t i = 0; i < size; ++i) sums[i] += sums[part * size + i];
  });
  for (std::int64_t c = 0; c < z.c; ++c) {
    const float* const from = sums + c / kLanes * taps * kLanes + c % kLanes;
    W* const to = dw + c * taps;
    for (std::int64_t tap = 0; tap < taps; ++tap)
      to[tap] = W(accumulate ? static_cast<float>(to[tap]) + from[tap * kLanes] : from[tap * kLanes]);
  }
}

void run(const CpuContext& context, const PrimitiveKey& key, const Operands& at) {
  with_weight_gradient(key, at, [&](const auto* x, const auto* dy, auto* dw) {
    backward_weights(context, conv_size(key), x, dy, dw, key.fused.accumulate);
  });
}

bool fits(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_avx2() && key.in != DType::f64 && z.groups == z.c && z.k == z.c && z.dilation_w == 1;
}
MadePrimitive make(const PrimitiveKey& key) {
  return made_of(key, run);
}

}  // namespace

extern const Implementation kConvDepthwiseWeights{
    .name = "direct",
    .fuses = {.accumulate = true},
    .fits = fits,
    .make = make,
    .needs = [](const PrimitiveKey& key) { return kConvDirect.needs(key); }};

}  // namespace athanor::cpu
