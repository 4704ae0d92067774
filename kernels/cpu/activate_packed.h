#pragma once

#include "kernels/activation.h"
#include "kernels/cpu/context.h"

namespace athanor::cpu {

/// y = activation(y), y dense, for products by packed weights: kernels::activate(), but its SiLU is faster on
/// a CPU with AVX-512 (f32) or AVX512_BF16 (bf16). In f32 that is off by at most 2e-7 of the result, in bf16
/// by one in the last place; results below 3e-37 in f32 and 1e-35 in bf16 may be 0. Infinities and NaN give
/// the same as there.
void activate_packed(CpuContext& context, Activation activation, const Tensor& y);

}  // namespace athanor::cpu
