#pragma once

#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/conv_size.h"

// Which implementation of a convolution `automatic` takes where none was measured on this machine, in the
// order in which conv.cpp asks.

namespace athanor::cpu {

/// Cases in which our code for few pixels was measured to beat the others on a Zen 5, because filters are too
/// large for the caches and few pixels use each: oneDNN's by 1.0 to 2.2 times, Winograd's by 1.0 to 1.3.
/// Excludes smaller filters that Winograd's algorithm supports, which do fit.
bool prefers_few_pixels(const ConvSize& size);

/// Cases in which Winograd's algorithm, which must fit, was measured to beat the definition: on a Zen 5
/// (AVX-512) by 1.2 to 3.7 times in f32, 1 to 2.5 times in bf16; on a Zen 3 (AVX2) by 1.1 to 4 times in f32;
/// at an error of 3e-6 of the largest value. Excludes mostly empty tiles, so few tiles that filters dominate,
/// CPUs where oneDNN uses bf16 tiles, and bf16 backward-data of 16 channels in and out where the CPU
/// multiplies bf16 (oneDNN is 1.3 to 1.5 times as fast). ATHANOR_WINOGRAD=off excludes all, to compare
/// results or times with those of the definition.
bool prefers_winograd(const ConvSize& size, PrimitiveKey::Op pass, DType dtype);

/// Whether our own direct code supports a pass on this CPU.
bool direct_fits(const ConvSize& size, PrimitiveKey::Op pass, DType dtype);
/// Cases in which it was measured to beat oneDNN.
/// On a Zen 5 (AVX-512), f32: up to 8 output channels forward (1 -> 6 channels, 5 x 5: 1.9 times), and up to
/// 8 input channels backward (6 <- 16 channels, 5 x 5: 1.6). bf16: only on CPUs that do not multiply it (with
/// AMX oneDNN is 2 to 9 times as fast over the layers of LeNet-5, ResNet-20 and ResNet-18), and on those
/// without AMX forward from one channel (1 -> 6: 2.1 times, 1 -> 32: 1.5); ours widen it to f32. f16: these
/// two passes, always. On a Zen 3 (AVX2), f32: those cases, by 1.4 and 1.1 times; forward over 128 values or
/// more, by 1.0 to 1.4; backward-weights of up to 32 input channels, by 1.2 to 2. Half types, which oneDNN
/// does not have there, by up to 40 times.
bool prefers_direct(const ConvSize& size, PrimitiveKey::Op pass, DType dtype);

/// Cases in which a product of Eigen's was measured to beat oneDNN 2.6 on a Zen 3 (AVX2), by 1.2 to 1.7
/// times: larger filters than 1 x 1 of many channels.
bool prefers_eigen(const ConvSize& size, DType dtype);

}  // namespace athanor::cpu
