// Explained in docs/where_time_goes_on_a_cpu.md.
#include <algorithm>
#include <memory>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/parallel.h"

// The last convolutions of a network on one image have more filters than pixels: reading the filters takes
// most of the time. So they are one product, [pixels, R S C] x [R S C, K]. The rows of the first factor are
// copied from the image; the second is packed in panels of 32 columns, which threads share, so that each is
// read from memory once, by one thread, from front to back.

namespace athanor::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kChunk = 128;  // rows of a panel in the L1 cache: 16 KB

std::int64_t quotient_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

struct Sizes : ConvSize {
  std::int64_t pixels() const { return n * p * q; }
  std::int64_t depth() const { return r * s * c; }
  std::int64_t panels() const { return quotient_up(k, kPanelColumns); }
};

/// Filters [K, R, S, C] as [K / 32, R S C, 32], with zeros after the last channel.
class FilterPanels final : public kernels::WeightLayout {
 public:
  explicit FilterPanels(const Sizes& z) : depth_(z.depth()), k_(z.k), panels_(z.panels()) {}

  bool equals(const WeightLayout& other) const override {
    const auto* const same = dynamic_cast<const FilterPanels*>(&other);
    return same && same->depth_ == depth_ && same->k_ == k_;
  }
  std::size_t bytes() const override {
    return static_cast<std::size_t>(panels_ * depth_ * kPanelColumns) * sizeof(float);
  }
  void fill(const CpuContext& context, const float* weights, void* to) const override {
    parallel_for(context, panels_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t panel = begin; panel < end; ++panel) {
        float* const out = static_cast<float*>(to) + panel * depth_ * kPanelColumns;
        for (std::int64_t column = 0; column < kPanelColumns; ++column) {
          const std::int64_t filter = panel * kPanelColumns + column;
          for (std::int64_t t = 0; t < depth_; ++t)
            out[t * kPanelColumns + column] = filter < k_ ? weights[filter * depth_ + t] : 0.0f;
        }
      }
    });
  }

 private:
  std::int64_t depth_, k_, panels_;
};

/// Writes for each pixel of the result the R S C values under its filter, zeros outside the image.
void copy_rows(const Sizes& z, const float* x, float* rows) {
  for (std::int64_t pixel = 0; pixel < z.pixels(); ++pixel) {
    const std::int64_t image = pixel / (z.p * z.q), top = pixel / z.q % z.p * z.stride_h - z.padding_h,
                       left = pixel % z.q * z.stride_w - z.padding_w;
    for (std::int64_t r = 0; r < z.r; ++r) {
      const std::int64_t row = top + r * z.dilation_h;
      for (std::int64_t s = 0; s < z.s; ++s, rows += z.c) {
        const std::int64_t column = left + s * z.dilation_w;
        const bool inside = row >= 0 && row < z.h && column >= 0 && column < z.w;
        if (inside)
          std::copy_n(x + ((image * z.h + row) * z.w + column) * z.c, z.c, rows);
        else
          std::fill_n(rows, z.c, 0.0f);
      }
    }
  }
}

/// y = activation(sums + bias + residual), the channels of one panel.
struct Finish {
  const float *bias, *residual;
  bool relu;
  std::int64_t k;
  float* y;
};
void write_panel(const Finish& f, std::int64_t panel, const float* sums, std::int64_t pixels) {
  const std::int64_t first = panel * kPanelColumns, width = std::min(f.k - first, kPanelColumns);
  vectorize([&] {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      const float* const from = sums + pixel * kPanelColumns;
      const float* const bias = f.bias ? f.bias + first : nullptr;
      const float* const residual = f.residual ? f.residual + pixel * f.k + first : nullptr;
      float* const to = f.y + pixel * f.k + first;
      for (std::int64_t k = 0; k < width; ++k) {
        float value = from[k];
        if (bias) value += bias[k];
        if (residual) value += residual[k];
        to[k] = f.relu && value < 0 ? 0.0f : value;  // NaN stays NaN
      }
    }
  });
}

class ConvFewPixels final : public Primitive {
 public:
  explicit ConvFewPixels(const PrimitiveKey& key)
      : z_{conv_size(key)},
        relu_(key.fused.activation == Activation::relu),
        layout_(std::make_shared<FilterPanels>(z_)) {}

  void run(const CpuContext& context, const Operands& at) override {
    const auto* const x = static_cast<const float*>(at.first);
    const auto* const filters = static_cast<const float*>(at.second);
    const Finish finish{static_cast<const float*>(at.bias), static_cast<const float*>(at.residual), relu_,
                        z_.k, static_cast<float*>(at.out)};
    const std::int64_t slots = std::min<std::int64_t>(context.threads(), z_.panels());
    const std::int64_t rows = quotient_up(z_.pixels(), 4) * 4, copies = rows * z_.depth();
    const SlotScratch& own =
        context.slot_scratch(slots, static_cast<std::size_t>(copies + rows * kPanelColumns) * sizeof(float));
    for_each_slot(context, slots, z_.panels(), [&](std::int64_t slot, const auto& each_piece) {
      float *const copied = own.as<float>(slot), *const sums = copied + copies;
      copy_rows(z_, x, copied);
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t panel = begin; panel < end; ++panel) {
          multiply(copied, filters + panel * z_.depth() * kPanelColumns, rows, z_.k - panel * kPanelColumns,
                   sums);
          write_panel(finish, panel, sums, z_.pixels());
        }
      });
    });
  }
  std::shared_ptr<const kernels::WeightLayout> layout() const override { return layout_; }

 private:
  void multiply(const float* copied, const float* panel, std::int64_t rows, std::int64_t columns,
                float* sums) const {
    for (std::int64_t t = 0; t < z_.depth(); t += kChunk)
      multiply_panel({.x = copied + t,
                      .row = z_.depth(),
                      .next = 1,
                      .w = panel + t * kPanelColumns,
                      .depth = std::min(kChunk, z_.depth() - t),
                      .out = sums,
                      .width = kPanelColumns,
                      .accumulate = t > 0,
                      .fetch_ahead = true},
                     rows, columns);
  }

  Sizes z_;
  bool relu_;
  std::shared_ptr<const kernels::WeightLayout> layout_;
};

bool fits(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_avx2() && key.in == DType::f32 && key.fused.packed && z.groups == 1 && z.c > 0 &&
         z.k % kLanes == 0;
}
MadePrimitive make(const PrimitiveKey& key) {
  return {std::make_unique<ConvFewPixels>(key), has_avx512() ? "few pixels, AVX-512" : "few pixels, AVX2"};
}

}  // namespace

extern const Implementation kConvFewPixels{.name = "few_pixels",
                                           .fuses = {.residual = true, .packed = true},
                                           .activations = kOnlyRelu,
                                           .fits = fits,
                                           .make = make};

}  // namespace athanor::cpu
