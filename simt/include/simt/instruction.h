#pragma once

#include <cuda_runtime.h>

// For the headers that give an instruction of PTX twice: as PTX for nvcc, and as its emulated twin.
//
//   __device__ __forceinline__ void f(int x SIMT_SITE) {
//   #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
//     asm volatile("..." : : "r"(x));
//   #elif !defined(__CUDACC__)
//     emulated::f(x, site);
//   #endif
//   }

#if defined(__CUDACC__)
#define SIMT_SITE
#define SIMT_ONLY_SITE
#else
#define SIMT_SITE , ::simt::Site site = ::simt::Site::current()
#define SIMT_ONLY_SITE ::simt::Site site = ::simt::Site::current()
#endif

namespace simt {

/// Of which GPU the code is that is being compiled: 80 for sm_80. 0 on the host; the emulator has all
/// instructions.
#if defined(__CUDA_ARCH__)
inline constexpr int kArchitecture = __CUDA_ARCH__ / 10;
#elif defined(__CUDACC__)
inline constexpr int kArchitecture = 0;
#else
inline constexpr int kArchitecture = 1000;
#endif

/// Whether wgmma is there: code for sm_90a, which no later GPU runs.
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWarpgroups = true;
#else
inline constexpr bool kHasWarpgroups = false;
#endif

#if defined(__CUDACC__)
/// The address of shared memory that its instructions take.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
#endif

}  // namespace simt
