#pragma once

// The emulator's stand-in for the CUDA toolkit's <cuda_runtime.h>: what our code uses of CUDA, by the same
// names and with the same values, so that the same .cu files are compiled by g++ (-x c++) and run on the CPU.
// It is written from the published interface; nothing of the toolkit is needed or included.
//
//   simt/types.h       dim3, float4, ... and their makers
//   simt/runtime_api.h cudaMalloc, streams, events, graphs: what host code calls
//   simt/device.h      __global__, threadIdx, barriers, warp shuffles, atomics: what kernels are written in
//   simt/intrinsics.h  __ldg, __popc, __float_as_uint, rsqrtf, ...
//   simt/launch.h      simt::launch, in place of <<<>>>

#if defined(__CUDACC__)
#error "kernels/simt/include is for the emulator: nvcc brings its own cuda_runtime.h"
#endif

#include <simt/device.h>
#include <simt/intrinsics.h>
#include <simt/launch.h>
#include <simt/runtime_api.h>
#include <simt/types.h>
