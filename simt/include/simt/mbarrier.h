#pragma once

#include <cstdint>

#include "simt/instruction.h"

// Barriers in shared memory (mbarrier), which count arrivals of threads and bytes of asynchronous copies, and
// the fences that go with them. A barrier has phases, 0, 1, ...; one is complete when as many have arrived as
// init said, and as many bytes came as were expected; then the next begins. Who waits says the phase's
// parity. sm_90.

namespace simt {

/// In shared memory.
struct alignas(8) MemoryBarrier {
  std::uint64_t word;
};

/// By one thread, before anybody else uses it: then a fence_mbarrier_init() and a barrier of the block.
__device__ __forceinline__ void mbarrier_init(MemoryBarrier* barrier, unsigned arrivals SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mbarrier.init.shared.b64 [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
#elif !defined(__CUDACC__)
  emulated::mbarrier_init(barrier, arrivals, site);
#else
  (void)barrier, (void)arrivals;
#endif
}

/// One arrival. What the thread did before is seen by those who wait for the phase.
__device__ __forceinline__ void mbarrier_arrive(MemoryBarrier* barrier SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}"
               :
               : "r"(shared_address(barrier))
               : "memory");
#elif !defined(__CUDACC__)
  emulated::mbarrier_arrive(barrier, 0, site);
#else
  (void)barrier;
#endif
}

/// The same, and that many bytes more are expected in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(MemoryBarrier* barrier, unsigned bytes SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#elif !defined(__CUDACC__)
  emulated::mbarrier_arrive(barrier, bytes, site);
#else
  (void)barrier, (void)bytes;
#endif
}

/// Waits until the phase of that parity, the current one or the one before it, is complete.
__device__ __forceinline__ void mbarrier_wait(MemoryBarrier* barrier, unsigned parity SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned done;
  do {  // try_wait waits for some time
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
#elif !defined(__CUDACC__)
  emulated::mbarrier_wait(barrier, parity, site);
#else
  (void)barrier, (void)parity;
#endif
}

/// Between what threads write and read, and what asynchronous work does: bulk copies and wgmma. Either the
/// thread that wrote calls it before a barrier, or the one that starts the work after it.
__device__ __forceinline__ void fence_proxy_async() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" : : : "memory");
#elif !defined(__CUDACC__)
  emulated::fence_proxy_async(false);
#endif
}

/// The same for barriers that this thread has initialised, and for nothing else.
__device__ __forceinline__ void fence_mbarrier_init() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#elif !defined(__CUDACC__)
  emulated::fence_proxy_async(true);
#endif
}

}  // namespace simt
