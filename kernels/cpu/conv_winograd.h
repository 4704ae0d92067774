#pragma once

#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cpu {

/// Whether our Winograd code supports it on this CPU: images that are not empty, 3 x 3 filters of multiples
/// of 16 channels, stride and dilation 1, padding up to 2, one group.
bool winograd_fits(const ConvSize& size);
/// The code for a supported pass: f32, or a half type with f32 sums. Unlike oneDNN's, it accumulates dw, and
/// also takes a residual in backward-data, which may share the result's memory.
MadePrimitive make_winograd(const PrimitiveKey& key);

/// Forward without a bias and an activation, and sums [2, K]: of each channel of y, as it is rounded, and of
/// its squares. Their order does not depend on the number of threads.
void winograd_forward_sums(const CpuContext& context, const PrimitiveKey& key, const void* x, const void* w,
                           void* y, double* sums);

}  // namespace athanor::cpu
