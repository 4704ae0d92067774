#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

// Backward-data for few input channels, on AVX-512. In NHWC the pixels under one row of the filter are
// contiguous: S C values, one or two vectors. So every output pixel computes its whole patch of dx in
// registers, R rows of them, each dy[k] broadcast against the filter's rows. It adds the patch to a frame of
// sums around the image. Unlike a correlation with the rotated filter, this multiplies no padding: half the
// work for a 5 x 5 filter on a 10 x 10 output.

namespace athanor::cpu {

#if defined(__x86_64__) && defined(__GNUC__)

namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kMaxVectors = 12;  // of one patch: two patches and the loads fit the 32 registers

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

struct Patches {
  const float *dy0, *dy1;  // [K] of two output pixels
  float *to0, *to1;        // first tap of each in the frame
  const float* w;          // [K, vectors * 16]
  std::int64_t k, row_step, vectors;
  std::uint32_t last_mask;  // used lanes of a row's last vector
  bool both;                // false: only one pixel
};

// Adds two patches of kCount vectors to the frame.
template <int kCount>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] void add_patches(const Patches& t) {
  __m512 sum0[kCount], sum1[kCount];
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i) sum0[i] = sum1[i] = _mm512_setzero_ps();
  const float* w = t.w;
  for (std::int64_t k = 0; k < t.k; ++k, w += kCount * kLanes) {
    const __m512 a = _mm512_set1_ps(t.dy0[k]), b = _mm512_set1_ps(t.dy1[k]);
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      const __m512 tap = _mm512_loadu_ps(w + i * kLanes);
      sum0[i] = _mm512_fmadd_ps(a, tap, sum0[i]);
      sum1[i] = _mm512_fmadd_ps(b, tap, sum1[i]);
    }
  }
  std::int64_t row = 0, vector = 0;
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i) {
    const bool last = vector + 1 == t.vectors;
    const __mmask16 mask = last ? static_cast<__mmask16>(t.last_mask) : static_cast<__mmask16>(0xffff);
    float* const to = t.to0 + row + vector * kLanes;
    _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum0[i]));
    if (t.both) {
      float* const other = t.to1 + row + vector * kLanes;
      _mm512_mask_storeu_ps(other, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, other), sum1[i]));
    }
    if (last) row += t.row_step;
    vector = last ? 0 : vector + 1;
  }
}

using AddPatches = void (*)(const Patches&);
constexpr AddPatches kAddPatches[] = {add_patches<1>, add_patches<2>,  add_patches<3>,  add_patches<4>,
                                      add_patches<5>, add_patches<6>,  add_patches<7>,  add_patches<8>,
                                      add_patches<9>, add_patches<10>, add_patches<11>, add_patches<12>};

}  // namespace

bool conv_scatter_fits(const ConvSize& z) {
  return has_avx512() && z.groups == 1 && z.dilation_w == 1 && z.r * vectors_per_row(z) <= kMaxVectors;
}

template <class T>
void conv_backward_data_scatter(CpuContext& context, const ConvSize& z, const T* dy, const T* w, T* dx) {
  const Frame frame(z);
  const std::int64_t vectors = vectors_per_row(z), width = z.r * vectors * kLanes, run = z.s * z.c;
  const std::int64_t slots = std::min<std::int64_t>(threads_for(context, z.work()), z.n);
  const std::int64_t row_size = (z.q * z.k + kLanes - 1) / kLanes * kLanes, per_slot = frame.size + row_size;
  const Scratch scratch =
      context.scratch(static_cast<std::size_t>(z.k * width + slots * per_slot) * sizeof(float));
  float* const packed = scratch.as<float>();
  for (std::int64_t k = 0; k < z.k; ++k) {
    for (std::int64_t r = 0; r < z.r; ++r) {
      float* const to = packed + k * width + r * vectors * kLanes;
      std::fill(to, to + vectors * kLanes, 0.0f);
      for (std::int64_t i = 0; i < run; ++i) to[i] = static_cast<float>(w[(k * z.r + r) * run + i]);
    }
  }
  const AddPatches add = kAddPatches[z.r * vectors - 1];
  const std::uint32_t last_mask = 0xffffu >> (vectors * kLanes - run);

  parallel_for(context, slots, 1, [&](std::int64_t first_slot, std::int64_t last_slot) {
    for (std::int64_t slot = first_slot; slot < last_slot; ++slot) {
      float* const sums = packed + z.k * width + slot * per_slot;
      float* const wide = sums + frame.size;
      for (std::int64_t n = slot * z.n / slots; n < (slot + 1) * z.n / slots; ++n) {
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
          // Patches of adjacent pixels overlap, so the two pixels of a pass are half a row apart.
          const std::int64_t half = (z.q + 1) / 2;
          for (std::int64_t q = 0; q < half; ++q) {
            const bool both = q + half < z.q;
            const std::int64_t other = both ? q + half : q;
            add({row + q * z.k, row + other * z.k, target + q * z.stride_w * z.c,
                 target + other * z.stride_w * z.c, packed, z.k, z.dilation_h * frame.pitch, vectors,
                 last_mask, both});
          }
        }
        vectorize([&] {
          for (std::int64_t h = 0; h < z.h; ++h) {
            const float* from = sums + (h + z.padding_h) * frame.pitch + z.padding_w * z.c;
            T* to = dx + (n * z.h + h) * z.w * z.c;
            for (std::int64_t i = 0; i < z.w * z.c; ++i) to[i] = T(from[i]);
          }
        });
      }
    }
  });
}

#else

bool conv_scatter_fits(const ConvSize&) {
  return false;
}
template <class T>
void conv_backward_data_scatter(CpuContext& context, const ConvSize& z, const T* dy, const T* w, T* dx) {
  conv_backward_data_eigen(context, z, dy, w, dx);
}

#endif

template void conv_backward_data_scatter(CpuContext&, const ConvSize&, const float*, const float*, float*);
template void conv_backward_data_scatter(CpuContext&, const ConvSize&, const Half*, const Half*, Half*);
template void conv_backward_data_scatter(CpuContext&, const ConvSize&, const BFloat16*, const BFloat16*,
                                         BFloat16*);

}  // namespace athanor::cpu
