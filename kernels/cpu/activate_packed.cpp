#include "kernels/cpu/activate_packed.h"

#include <cstdint>

#include "kernels/activate.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

// SiLU is y / (1 + exp(-y)), with one exponential that may overflow: y / infinity is the 0 that is wanted.
// The functor, which training uses too, computes exp(-|y|), exact to the smallest result. For each value, on
// a Zen 4: 0.22 ns in f32, where the functor takes 0.42 and oneDNN 2.6 0.75; 0.18 ns in bf16, oneDNN 0.55.

#if defined(__x86_64__) && defined(__GNUC__)

#include "kernels/cpu/vector.h"

namespace athanor::cpu {
namespace {

using namespace avx512;

ATH_AVX512 inline Floats rounded(Floats x) {
  return _mm512_maskz_roundscale_ps(kAll, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/// Those of the 16 values at y that `lanes` names. The exponential is math::exp()'s: exp(-y) = 2^whole
/// exp(-r). A reciprocal and a step of Newton's take longer than the division.
ATH_AVX512 inline void silu_of(float* y, __mmask16 lanes) {
  const Floats x = _mm512_maskz_loadu_ps(lanes, y);
  // Infinities would give NaN. A NaN passes both, as the second operand.
  const Floats bounded = _mm512_maskz_min_ps(kAll, all(104), _mm512_maskz_max_ps(kAll, all(-104), x));
  const Floats whole = rounded(bounded * all(-1.44269504f));
  const Floats r = fused(whole, all(0x1.7f7d1cp-20f), fused(whole, all(0x1.62e4p-1f), bounded));
  Floats exp = fused(r, all(0.00138146025f), all(-0.00836871716f));
  exp = fused(r, exp, all(0.041668388f));
  exp = fused(r, exp, all(-0.166665206f));
  exp = fused(r, exp, all(0.499999934f));
  exp = fused(r, exp, all(-1));
  exp = fused(r, exp, all(1));
  _mm512_mask_storeu_ps(y, lanes, x / (all(1) + _mm512_maskz_scalef_ps(kAll, exp, whole)));
}

/// A result in bf16 has eight bits: a polynomial of degree 3 for 2^f, within [-1/2, 1/2] off by 1e-4, and the
/// CPU's reciprocal of 14 bits are enough.
ATH_AVX512_BF16 inline void silu_of(BFloat16* y, __mmask16 lanes) {
  const __m256i bits = _mm256_maskz_loadu_epi16(lanes, y);
  const Floats x =
      _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
  // exp(-x) = 2^power. That of infinity is bounded, which would give NaN; a NaN passes, as the second
  // operand.
  const Floats power = _mm512_maskz_max_ps(kAll, all(-150), x * all(-1.44269504f));
  const Floats whole = rounded(power), part = power - whole;
  Floats exp = fused(part, all(0.05517166f), all(0.24261834f));
  exp = fused(part, exp, all(0.69326099f));
  exp = fused(part, exp, all(0.99992807f));
  exp = _mm512_maskz_scalef_ps(kAll, exp, whole);
  const Floats result = x * _mm512_maskz_rcp14_ps(kAll, all(1) + exp);
  _mm256_mask_storeu_epi16(y, lanes, (__m256i)_mm512_maskz_cvtneps_pbh(kAll, result));
}

ATH_AVX512 void silu_of(float* y, std::int64_t count) {
  for (; count >= kFloats; count -= kFloats, y += kFloats) silu_of(y, kAll);
  if (count > 0) silu_of(y, first_lanes(count));
}
ATH_AVX512_BF16 void silu_of(BFloat16* y, std::int64_t count) {
  for (; count >= kFloats; count -= kFloats, y += kFloats) silu_of(y, kAll);
  if (count > 0) silu_of(y, first_lanes(count));
}

template <class T> void silu(const CpuContext& context, const Tensor& y) {
  T* const values = y.data<T>();
  parallel_for(context, y.numel(), kGrain,
               [&](std::int64_t begin, std::int64_t end) { silu_of(values + begin, end - begin); });
}

}  // namespace

void activate_packed(CpuContext& context, Activation activation, const Tensor& y) {
  if (activation == Activation::silu && has_avx512()) {
    if (y.dtype() == DType::f32) return silu<float>(context, y);
    if (y.dtype() == DType::bf16 && has_avx512_bf16()) return silu<BFloat16>(context, y);
  }
  kernels::activate(context, activation, y);
}

}  // namespace athanor::cpu

#else

namespace athanor::cpu {

void activate_packed(CpuContext& context, Activation activation, const Tensor& y) {
  kernels::activate(context, activation, y);
}

}  // namespace athanor::cpu

#endif
