#pragma once

#include "simt/instruction.h"

// Asynchronous copies of single threads, from global to shared memory (cp.async). A thread starts copies,
// closes groups of them, and waits for groups; others see what came after a barrier that follows its wait.
// sm_80.

namespace simt {

/// Starts a copy of kBytes, 4, 8 or 16; both addresses are multiples of it. Of the source only the first
/// `source_bytes` are read, the rest of the target becomes zero; with 0 the source may be any pointer. 16
/// bytes go past the L1 cache (cp.async.cg) unless kThroughL1; fewer cannot.
template <int kBytes, bool kThroughL1 = kBytes != 16>
__device__ __forceinline__ void cp_async(void* to, const void* from, int source_bytes = kBytes SIMT_SITE) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  static_assert(kThroughL1 || kBytes == 16, "cp.async.cg copies 16 bytes");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const unsigned target = shared_address(to);
  if constexpr (kThroughL1) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(target), "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(target), "l"(__cvta_generic_to_global(from)), "r"(source_bytes)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  emulated::cp_async(to, from, kBytes, source_bytes, site);
#else
  (void)to, (void)from, (void)source_bytes;
#endif
}

/// The copies that this thread has started since the last group are a group, perhaps an empty one.
__device__ __forceinline__ void cp_async_commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#elif !defined(__CUDACC__)
  emulated::cp_async_commit();
#endif
}

/// Waits until all groups of this thread are done but the kGroups latest.
template <int kGroups> __device__ __forceinline__ void cp_async_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
#elif !defined(__CUDACC__)
  emulated::cp_async_wait(kGroups);
#endif
}

/// Waits for all copies that this thread has started.
__device__ __forceinline__ void cp_async_wait_all() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" : : : "memory");
#elif !defined(__CUDACC__)
  emulated::cp_async_commit();
  emulated::cp_async_wait(0);
#endif
}

}  // namespace simt
