#include "kernels/int8.h"

#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parallel.h"
#include "kernels/int8_ops.h"
#include "kernels/scratch.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

// Elements of 8 bits, one by one. A store to u8 may alias anything, so loops read copies of their own.

namespace athanor::kernels {
namespace {

/// Calls f(begin, end) on pieces of [0, n), in parallel, compiled as in vectorize().
template <class F> void for_elements(CpuContext& context, std::int64_t n, const F& f) {
  cpu::parallel_for(context, n, cpu::kGrain,
                    [&](std::int64_t begin, std::int64_t end) { cpu::vectorize([&] { f(begin, end); }); });
}

#if defined(__x86_64__) && defined(__GNUC__)

/// 64 at once: each half of the table is two vectors. Returns the number that it has looked up.
[[gnu::target("avx512f,avx512bw,avx512vbmi")]] std::int64_t lookup_vectors(const std::uint8_t* x,
                                                                           std::int64_t count,
                                                                           const std::uint8_t* table,
                                                                           std::uint8_t* y) {
  const __m512i quarter[] = {_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64),
                             _mm512_loadu_si512(table + 128), _mm512_loadu_si512(table + 192)};
  std::int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    const __m512i at = _mm512_loadu_si512(x + i);
    const __m512i low = _mm512_permutex2var_epi8(quarter[0], at, quarter[1]),
                  high = _mm512_permutex2var_epi8(quarter[2], at, quarter[3]);
    _mm512_storeu_si512(y + i, _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(at), high));
  }
  return i;
}

#else

std::int64_t lookup_vectors(const std::uint8_t*, std::int64_t, const std::uint8_t*, std::uint8_t*) {
  return 0;
}

#endif

}  // namespace

void quantize(CpuContext& context, const Tensor& x, const Quantizer& quantizer, Out y) {
  for_elements(context, x.numel(),
               [from = x.data<float>(), to = y.data<std::uint8_t>(), scale = quantizer.scale,
                round = RoundToU8({.zero = quantizer.zero})](std::int64_t begin, std::int64_t end) {
                 const float* __restrict a = from;
                 std::uint8_t* __restrict b = to;
                 const RoundToU8 r = round;
                 const float s = scale;
                 for (std::int64_t i = begin; i < end; ++i) b[i] = quantized(a[i], s, r);
               });
}

void dequantize(CpuContext& context, const Tensor& x, const Quantizer& quantizer, Out y) {
  for_elements(context, x.numel(),
               [from = x.data<std::uint8_t>(), to = y.data<float>(), scale = quantizer.scale,
                zero = quantizer.zero](std::int64_t begin, std::int64_t end) {
                 const std::uint8_t* __restrict a = from;
                 float* __restrict b = to;
                 for (std::int64_t i = begin; i < end; ++i) b[i] = scale * static_cast<float>(a[i] - zero);
               });
}

void add_int8(CpuContext& context, const Tensor& a, float a_scale, std::int32_t a_zero, const Int8Residual& b,
              const Rounding& rounding, Out y) {
  for_elements(context, a.numel(),
               [left = a.data<std::uint8_t>(), right = b.tensor.data<std::uint8_t>(),
                to = y.data<std::uint8_t>(), a_scale, a_zero, scale = b.scale, zero = b.zero,
                round = RoundToU8(rounding)](std::int64_t begin, std::int64_t end) {
                 const std::uint8_t *const x = left, *const z = right;
                 std::uint8_t* const sums = to;
                 const RoundToU8 r = round;
                 const float s = a_scale, t = scale;
                 const std::int32_t p = a_zero, q = zero;
#pragma GCC ivdep  // y may be a or b
                 for (std::int64_t i = begin; i < end; ++i) {
                   const float v = s * static_cast<float>(x[i] - p);
                   sums[i] = r(v + t * static_cast<float>(z[i] - q));
                 }
               });
}

void multiply_int8(CpuContext& context, const Tensor& x, std::int32_t x_zero, const Tensor& s,
                   std::int32_t s_zero, float scale, const Rounding& rounding, Out y) {
  if (x.numel() == 0) return;
  const std::int64_t channels = x.dim(3), pixels = x.dim(1) * x.dim(2), images = x.dim(0);
  // A gate is repeated for as many pixels as make a long loop of few channels. In f32 it is exact, and so is
  // its product with a value.
  constexpr std::int64_t kLoop = 512;
  const std::int64_t repeats = std::clamp<std::int64_t>(kLoop / channels, 1, pixels),
                     run = repeats * channels, runs = (pixels + repeats - 1) / repeats;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(images * run) * sizeof(float));
  auto* const gates = scratch.as<float>();
  for (std::int64_t n = 0; n < images; ++n) {
    const std::uint8_t* const from = s.data<std::uint8_t>() + n * channels;
    float* to = gates + n * run;
    for (std::int64_t i = 0; i < repeats; ++i)
      for (std::int64_t c = 0; c < channels; ++c) *to++ = static_cast<float>(from[c] - s_zero);
  }
  const RoundToU8 round(rounding);
  const auto* const in = x.data<std::uint8_t>();
  auto* const out = y.data<std::uint8_t>();
  cpu::for_each_task<true>(context, images * runs, cpu::grain_of(run), [=](std::int64_t task) {
    const std::int64_t n = task / runs, begin = task % runs * run,
                       count = std::min(run, pixels * channels - begin),
                       first = n * pixels * channels + begin;
    const std::uint8_t* const from = in + first;
    std::uint8_t* const to = out + first;
    const float* __restrict gate = gates + n * run;
    const RoundToU8 r = round;
    const float by = scale;
    const std::int32_t zero = x_zero;
    for (std::int64_t i = 0; i < count; ++i) to[i] = r(by * (static_cast<float>(from[i] - zero) * gate[i]));
  });
}

void lookup_int8(CpuContext& context, const Tensor& x, const Tensor& table, Out y) {
  const auto *const from = x.data<std::uint8_t>(), *const of = table.data<std::uint8_t>();
  auto* const to = y.data<std::uint8_t>();
  cpu::parallel_for(context, x.numel(), cpu::kGrain, [=](std::int64_t begin, std::int64_t end) {
    std::int64_t i = begin;
    if (cpu::has_avx512_vbmi()) i += lookup_vectors(from + begin, end - begin, of, to + begin);
    for (; i < end; ++i) to[i] = of[from[i]];
  });
}

}  // namespace athanor::kernels
