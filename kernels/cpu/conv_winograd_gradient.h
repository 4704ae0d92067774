#pragma once

#include "kernels/cpu/primitive_cache.h"

namespace athanor::cpu {

/// dw [K, 3, 3, C] (+)= the gradient of the weights of a convolution that winograd_fits(), from x and dy, by
/// Winograd's algorithm. T, of the tensors: float, Half or BFloat16; W: T or float.
template <class T, class W>
void winograd_backward_weights(const CpuContext& context, const PrimitiveKey& key, const T* x, const T* dy,
                               W* dw);

}  // namespace athanor::cpu
