#pragma once

// The emulator's stand-in for the CUDA toolkit's <cuda_runtime.h>: what kernels and the code that drives them
// use of CUDA, by the same names and with the same values: g++ (-x c++) compiles the same .cu files for the
// CPU. It is written from the published interface; nothing of the toolkit is needed or included.
//
//   simt/types.h       dim3, float4, ... and their makers
//   simt/runtime_api.h cudaMalloc, streams, events, graphs: what host code calls
//   simt/device.h      __global__, threadIdx, barriers, warp shuffles, atomics: what kernels are written in
//   simt/intrinsics.h  __ldg, __popc, __float_as_uint, rsqrtf, ...
//   simt/call.h        what simt::launch, in place of <<<>>>, calls here

#if defined(__CUDACC__)
#error "simt/include is for the emulator: nvcc brings its own cuda_runtime.h"
#endif

#include <simt/call.h>
#include <simt/device.h>
#include <simt/intrinsics.h>
#include <simt/runtime_api.h>
#include <simt/types.h>
