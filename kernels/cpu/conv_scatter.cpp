#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/conv_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/scratch.h"

// Backward-data for few input channels. In NHWC the pixels under one row of the filter are contiguous: S C
// values, one or two vectors of 16. So every output pixel computes its patch of dx in registers, as many of
// its R rows at a time as fit, each dy[k] broadcast against the filter's rows. It adds the patch to a frame
// of sums around the image. Unlike a correlation with the rotated filter, this multiplies no padding: half
// the work for a 5 x 5 filter on a 10 x 10 output.

namespace athanor::cpu {

extern const Implementation kConvDirect;

namespace {

using conv_tiles::kLanes;

constexpr std::int64_t kMaxVectors = 12;  ///< of one patch

std::int64_t vectors_per_row(const ConvSize& z) {
  return (z.s * z.c + kLanes - 1) / kLanes;
}

/// The frame: dx with its padding, in f32, and one vector of slack.
struct Frame {
  std::int64_t pitch, size;
  explicit Frame(const ConvSize& z) {
    const std::int64_t rows =
        std::max(z.h + z.padding_h, (z.p - 1) * z.stride_h + (z.r - 1) * z.dilation_h + 1);
    const std::int64_t columns = std::max(z.w + z.padding_w, (z.q - 1) * z.stride_w + z.s);
    pitch = columns * z.c;
    size = (rows * pitch + 2 * kLanes - 1) / kLanes * kLanes;
  }
};

/// Filters in the order in which they are read: group by group of rows, [K, rows * vectors * 16] each, with
/// zeros after a row's last value.
struct FilterRows {
  std::int64_t vectors, at_once, r, run, k;

  explicit FilterRows(const ConvSize& z)
      : vectors(vectors_per_row(z)),
        at_once(std::min<std::int64_t>(z.r, conv_tiles::code().max_patch / vectors)),
        r(z.r),
        run(z.s * z.c),
        k(z.k) {}

  std::int64_t floats() const { return k * r * vectors * kLanes; }
  std::int64_t rows_from(std::int64_t first) const { return std::min(at_once, r - first); }
  std::int64_t at(std::int64_t first) const { return first * k * vectors * kLanes; }

  template <class T> void pack(const T* w, float* to) const {
    for (std::int64_t first = 0; first < r; first += at_once) {
      for (std::int64_t filter = 0; filter < k; ++filter) {
        for (std::int64_t row = first; row < first + rows_from(first); ++row, to += vectors * kLanes) {
          std::fill(to, to + vectors * kLanes, 0.0f);
          for (std::int64_t i = 0; i < run; ++i) to[i] = static_cast<float>(w[(filter * r + row) * run + i]);
        }
      }
    }
  }
};

template <class T>
void backward_data(const CpuContext& context, const ConvSize& z, const T* dy, const T* w, T* dx) {
  const Frame frame(z);
  const FilterRows filters(z);
  const std::int64_t slots = std::min<std::int64_t>(threads_for(context, z.work()), z.n);
  const std::int64_t row_size = (z.q * z.k + kLanes - 1) / kLanes * kLanes, per_slot = frame.size + row_size;
  const Scratch scratch =
      context.scratch(static_cast<std::size_t>(filters.floats() + slots * per_slot) * sizeof(float));
  float* const packed = scratch.as<float>();
  filters.pack(w, packed);
  const conv_tiles::Code& code = conv_tiles::code();
  const std::int64_t last = filters.run - (filters.vectors - 1) * kLanes;  // floats of a row's last vector

  for_each_slot(context, slots, z.n, [&](std::int64_t slot, const auto& each_piece) {
    float* const sums = packed + filters.floats() + slot * per_slot;
    float* const wide = sums + frame.size;
    each_piece([&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        std::fill(sums, sums + frame.size, 0.0f);
        for (std::int64_t p = 0; p < z.p; ++p) {
          const T* const from = dy + (n * z.p + p) * z.q * z.k;
          const float* row = wide;
          if constexpr (std::is_same_v<T, float>) {
            row = from;
          } else {
            vectorize([&] {
              for (std::int64_t i = 0; i < z.q * z.k; ++i) wide[i] = static_cast<float>(from[i]);
            });
          }
          float* const target = sums + p * z.stride_h * frame.pitch;
          const std::int64_t row_step = z.dilation_h * frame.pitch;
          for (std::int64_t r = 0; r < z.r; r += filters.at_once)
            code.add_patches[filters.rows_from(r) * filters.vectors - 1](
                {row, target + r * row_step, z.q, z.stride_w * z.c, packed + filters.at(r), z.k, row_step,
                 filters.vectors, last});
        }
        vectorize([&] {
          for (std::int64_t h = 0; h < z.h; ++h) {
            const float* from = sums + (h + z.padding_h) * frame.pitch + z.padding_w * z.c;
            T* to = dx + (n * z.h + h) * z.w * z.c;
            for (std::int64_t i = 0; i < z.w * z.c; ++i) to[i] = T(from[i]);
          }
        });
      }
    });
  });
}

void run(const CpuContext& context, const PrimitiveKey& key, const Operands& at) {
  dispatch_floating(key.in, "conv2d", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>)
      backward_data(context, conv_size(key), static_cast<const T*>(at.first),
                    static_cast<const T*>(at.second), static_cast<T*>(at.out));
  });
}

/// Few input channels: R ceil(S C / 16) <= 12, and S C <= 48 without AVX-512.
bool fits(const PrimitiveKey& key) {
  if (!has_avx2() || key.in == DType::f64) return false;
  const ConvSize z = conv_size(key);
  return z.groups == 1 && z.dilation_w == 1 && z.r * vectors_per_row(z) <= kMaxVectors &&
         vectors_per_row(z) <= conv_tiles::code().max_patch;
}
MadePrimitive make(const PrimitiveKey& key) {
  return made_of(key, run);
}

}  // namespace

extern const Implementation kConvScatter{
    .name = "direct", .fuses = {}, .fits = fits, .make = make, .needs = [](const PrimitiveKey& key) {
      return kConvDirect.needs(key);
    }};

}  // namespace athanor::cpu
