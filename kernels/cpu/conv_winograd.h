#pragma once

#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cpu {

/// Whether this CPU and our Winograd code can do it: 3 x 3 filters of multiples of 16 channels, stride 1.
bool winograd_fits(const ConvSize& size);
/// The code for a pass of one that fits: f32, or a half type with f32 sums. Unlike oneDNN's, it accumulates
/// dw, and takes a residual in backward-data, too, which may be the result's own memory.
MadePrimitive make_winograd(const PrimitiveKey& key);

}  // namespace athanor::cpu
