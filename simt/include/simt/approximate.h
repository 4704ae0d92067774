#pragma once

#include <cmath>
#include <limits>

#include "simt/instruction.h"

// Functions that a GPU approximates in hardware. The emulator rounds them correctly, so results differ in
// their last bits.

namespace simt {

/// 2^x by ex2.approx.ftz.f32: a relative error of at most 2^-22; 0 where the result is not a normal number.
__device__ __forceinline__ float exp2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
#endif
}

}  // namespace simt
