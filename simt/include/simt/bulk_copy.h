#pragma once

#include "simt/mbarrier.h"
#include "simt/tensor_map.h"

// Asynchronous copies of many bytes to shared memory, started by one thread: dense ones (cp.async.bulk), and
// tiles of tensors (cp.async.bulk.tensor). They go through the asynchronous proxy: what threads have written
// there must be fenced first (fence_proxy_async()). A barrier in memory counts what has come. sm_90.

namespace simt {

/// Starts a copy to shared memory; all three are multiples of 16. The barrier gets that many bytes.
__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes,
                                          MemoryBarrier* barrier SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                 "r"(shared_address(barrier))
               : "memory");
#elif !defined(__CUDACC__)
  emulated::bulk_load(to, from, bytes, barrier, site);
#else
  (void)to, (void)from, (void)bytes, (void)barrier;
#endif
}

/// Starts a copy of the tile that begins at the element (x, y), x along the dense axis, to shared memory.
/// What of the tile lies outside of the tensor becomes zero; the barrier gets the bytes of the whole tile.
/// The target is a multiple of 128 bytes; with a swizzle, of its pattern: simt/swizzle.h. The map is a
/// parameter of the kernel, const __grid_constant__.
__device__ __forceinline__ void tensor_load(void* to, const TensorMap& map, int x, int y,
                                            MemoryBarrier* barrier SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], "
      "[%4];"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier))
      : "memory");
#elif !defined(__CUDACC__)
  const int at[] = {x, y};
  emulated::tensor_load(to, map, at, 2, barrier, site);
#else
  (void)to, (void)map, (void)x, (void)y, (void)barrier;
#endif
}
__device__ __forceinline__ void tensor_load(void* to, const TensorMap& map, int x, int y, int z,
                                            MemoryBarrier* barrier SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4}], [%5];"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
#elif !defined(__CUDACC__)
  const int at[] = {x, y, z};
  emulated::tensor_load(to, map, at, 3, barrier, site);
#else
  (void)to, (void)map, (void)x, (void)y, (void)z, (void)barrier;
#endif
}

}  // namespace simt
