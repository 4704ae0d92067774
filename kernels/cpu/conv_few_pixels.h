#pragma once

#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cpu {

/// Whether our code for few output pixels supports it on this CPU: one group, and a multiple of 16 output
/// channels.
bool conv_few_pixels_fits(const ConvSize& size);
/// The code for a supported forward pass with packed f32 weights. Threads share the filters, so that each is
/// read from memory once, by one thread, from front to back.
MadePrimitive make_conv_few_pixels(const PrimitiveKey& key);

}  // namespace athanor::cpu
