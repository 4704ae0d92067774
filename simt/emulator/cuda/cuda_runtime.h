#pragma once

// The emulator's stand-in for the CUDA toolkit's <cuda_runtime.h>: what kernels and the code that drives them
// use of CUDA, by the same names and with the same values: g++ (-x c++) compiles the same .cu files for the
// CPU. It is written from the published interface; nothing of the toolkit is needed or included.
//
//   types.h        dim3, float4, ... and their makers
//   runtime_api.h  cudaMalloc, streams, events, graphs: what host code calls
//   device.h       __global__, threadIdx, barriers, warp shuffles, atomics: what kernels are written in
//   intrinsics.h   __ldg, __popc, __float_as_uint, rsqrtf, ...
//   instructions.h the twins of PTX that the headers in simt/include call
//   call.h         what simt::launch, in place of <<<>>>, calls here

#if defined(__CUDACC__)
#error "simt/emulator/cuda is for the emulator: nvcc brings its own cuda_runtime.h"
#endif

#define SIMT_CUDA_RUNTIME  // for simt/include: this is the emulator's

#include "simt/emulator/cuda/call.h"
#include "simt/emulator/cuda/device.h"
#include "simt/emulator/cuda/instructions.h"
#include "simt/emulator/cuda/intrinsics.h"
#include "simt/emulator/cuda/runtime_api.h"
#include "simt/emulator/cuda/types.h"
