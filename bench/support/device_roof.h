#pragma once

#include "bench/support/roof.h"
#include "tensor/device.h"

namespace athanor::bench {

/// Bytes per second (read and written together) of the best copy on the device, our own kernel's or the
/// driver's, of that many bytes; 0: of at least 256 MiB. Measured once for each size.
Roof device_copy_roof(Device device, std::int64_t bytes = 0);

/// "FMA": single-precision FLOP/s of independent fused multiply-adds in registers. "f16", "bf16", "tf32": the
/// best product of two 8192 x 8192 matrices of that type, ours or the vendor's, of random values (a device
/// is faster on zeros). Each measured once.
Roof device_flops_roof(Device device, const std::string& name);

/// One launch of the kernels behind the roofs, for device_roof.cpp.
void queue_copy(Device device, const void* from, void* to, std::int64_t bytes, int blocks_per_multiprocessor);
void queue_driver_copy(Device device, const void* from, void* to, std::int64_t bytes);
/// Returns the FLOPs queued. `out` holds a float for each thread.
inline constexpr int kFmaThreads = 256;
double queue_fma(Device device, float* out, unsigned blocks);

}  // namespace athanor::bench
