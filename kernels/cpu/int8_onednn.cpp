#include <algorithm>
#include <memory>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/int8_conv.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/int8_ops.h"
#include "kernels/scratch.h"

// 8-bit convolutions by oneDNN's product of matrices, whose sums are exact. (Its convolutions round in an
// order of their own.) What lies under some pixels is copied, one row each, multiplied by all filters, and
// rounded.

namespace athanor::cpu {
namespace {

constexpr std::int64_t kChunkBytes = 4 << 20;  ///< of rows and sums at a time

class Int8OneDnn final : public Primitive {
 public:
  explicit Int8OneDnn(const PrimitiveKey& key)
      : z_(conv_size(key)),
        threads_(key.threads),
        rounds_(key.out == DType::u8),
        depth_(z_.r * z_.s * z_.c),
        pixels_(z_.n * z_.p * z_.q),
        chunk_(std::clamp<std::int64_t>(kChunkBytes / (depth_ + 4 * z_.k), 1, pixels_)) {}

  void run(const CpuContext& context, const Operands& at) override {
    const auto* const x = static_cast<const std::uint8_t*>(at.first);
    const auto* const w = static_cast<const std::int8_t*>(at.second);
    const std::int64_t sum_bytes = chunk_ * z_.k * static_cast<std::int64_t>(sizeof(std::int32_t));
    const Scratch scratch = context.scratch(static_cast<std::size_t>(sum_bytes + chunk_ * depth_));
    auto* const sums = scratch.as<std::int32_t>();
    auto* const rows = scratch.as<std::uint8_t>() + sum_bytes;
    for (std::int64_t first = 0; first < pixels_; first += chunk_) {
      const std::int64_t count = std::min(chunk_, pixels_ - first);
      if (!z_.is_pointwise()) {
        parallel_for(context, count, std::max<std::int64_t>(kGrain / depth_, 1),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i)
                         copy_row(x, at.int8->x_zero, first + i, rows + i * depth_);
                     });
      }
      multiply_int8_onednn(context, threads_,
                           {.a = z_.is_pointwise() ? x + first * z_.c : rows,
                            .b = w,
                            .y = sums,
                            .m = count,
                            .n = z_.k,
                            .k = depth_});
      parallel_for(context, count, std::max<std::int64_t>(kGrain / z_.k, 1),
                   [&](std::int64_t begin, std::int64_t end) { finish(at, first, begin, end, sums); });
    }
  }

 private:
  /// The R S C values under a pixel, `zero` outside of the image.
  void copy_row(const std::uint8_t* x, std::int32_t zero, std::int64_t pixel, std::uint8_t* row) const {
    const std::int64_t image = pixel / (z_.p * z_.q), p = pixel / z_.q % z_.p, q = pixel % z_.q;
    for (std::int64_t r = 0; r < z_.r; ++r) {
      const std::int64_t h = z_.row(p, r);
      for (std::int64_t s = 0; s < z_.s; ++s, row += z_.c) {
        const std::int64_t column = z_.column(q, s);
        if (h >= 0 && h < z_.h && column >= 0 && column < z_.w)
          std::copy_n(x + ((image * z_.h + h) * z_.w + column) * z_.c, z_.c, row);
        else
          std::fill_n(row, z_.c, static_cast<std::uint8_t>(zero));
      }
    }
  }

  /// Results of some pixels, whose sums follow those of the pixel `first`.
  void finish(const Operands& at, std::int64_t first, std::int64_t begin, std::int64_t end,
              const std::int32_t* sums) const {
    const Int8Operands& step = *at.int8;
    const auto* const bias = static_cast<const std::int32_t*>(at.bias);
    const kernels::RoundToU8 round(step.rounding);
    vectorize([&] {
      for (std::int64_t pixel = begin; pixel < end; ++pixel) {
        const std::int32_t* const sum = sums + pixel * z_.k;
        const std::int64_t to = (first + pixel) * z_.k;
        if (!rounds_) {
          float* const y = static_cast<float*>(at.out) + to;
          for (std::int64_t k = 0; k < z_.k; ++k)
            y[k] = step.multiplier[k] * static_cast<float>(bias[k] + sum[k]);
          continue;
        }
        std::uint8_t* const y = static_cast<std::uint8_t*>(at.out) + to;
        if (!at.residual) {
          for (std::int64_t k = 0; k < z_.k; ++k)
            y[k] = round(step.multiplier[k] * static_cast<float>(bias[k] + sum[k]));
          continue;
        }
        const std::uint8_t* const residual = static_cast<const std::uint8_t*>(at.residual) + to;
        for (std::int64_t k = 0; k < z_.k; ++k) {
          const float more =
              step.residual_scale * static_cast<float>(std::int32_t{residual[k]} - step.residual_zero);
          y[k] = round(step.multiplier[k] * static_cast<float>(bias[k] + sum[k]) + more);
        }
      }
    });
  }

  ConvSize z_;
  int threads_;
  bool rounds_;
  std::int64_t depth_, pixels_;
  std::int64_t chunk_;  ///< pixels at a time
};

bool fits(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_exact_int8_onednn() && z.groups == 1 && z.c > 0;
}
MadePrimitive make(const PrimitiveKey& key) {
  return {std::make_unique<Int8OneDnn>(key), "product by oneDNN"};
}

}  // namespace

extern const Implementation kInt8OneDnn{
    .name = "vendor", .fuses = {.residual = true}, .fits = fits, .make = make};

}  // namespace athanor::cpu
