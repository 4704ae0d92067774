#include "simt/mbarrier.h"
#include "tests/simt/tensor_kernels.h"

// One bug in each kernel.

namespace simt::test {
namespace {

__device__ __forceinline__ void init(MemoryBarrier* barrier, unsigned arrivals) {
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, arrivals);
    fence_mbarrier_init();
  }
  __syncthreads();
}

__global__ void mbarrier_uninitialised_kernel(float*) {
  __shared__ MemoryBarrier barrier;
  mbarrier_arrive(&barrier);  // line: mbarrier_uninitialised
}

__global__ void mbarrier_init_twice_kernel(float*) {
  __shared__ MemoryBarrier barrier;
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 1);  // line: mbarrier_init_twice_first
    mbarrier_init(&barrier, 2);  // line: mbarrier_init_twice
  }
}

__global__ void mbarrier_no_barrier_kernel(float* out) {
  __shared__ MemoryBarrier barrier;
  if (threadIdx.x == 0) mbarrier_init(&barrier, 64);
  __syncwarp();
  if (threadIdx.x == 0) mbarrier_arrive(&barrier);
  out[threadIdx.x] = 1;
  if (threadIdx.x == 32) mbarrier_arrive(&barrier);  // line: mbarrier_no_barrier
}

__global__ void mbarrier_lacks_arrivals_kernel(float* out) {
  __shared__ MemoryBarrier barrier;
  init(&barrier, 64);
  if (threadIdx.x != 5) mbarrier_arrive(&barrier);
  mbarrier_wait(&barrier, 0);  // line: mbarrier_lacks_arrivals
  out[threadIdx.x] = 1;
}

__global__ void mbarrier_wrong_parity_kernel(float* out) {
  __shared__ MemoryBarrier barrier;
  init(&barrier, 64);
  mbarrier_arrive(&barrier);
  mbarrier_wait(&barrier, 0);
  out[threadIdx.x] = 1;
  mbarrier_arrive(&barrier);
  mbarrier_wait(&barrier, 0);  // line: mbarrier_wrong_parity
}

__global__ void mbarrier_no_wait_kernel(float* out) {
  __shared__ MemoryBarrier barrier;
  __shared__ float values[64];
  init(&barrier, 64);
  values[threadIdx.x] = 1;  // line: mbarrier_no_wait_write
  mbarrier_arrive(&barrier);
  if (threadIdx.x % 2 == 0) mbarrier_wait(&barrier, 0);
  out[threadIdx.x] = values[63 - threadIdx.x];  // line: mbarrier_no_wait
}

__global__ void mbarrier_writes_after_arrival_kernel(float* out) {
  __shared__ MemoryBarrier barrier;
  __shared__ float values[64];
  init(&barrier, 64);
  mbarrier_arrive(&barrier);
  values[threadIdx.x] = 1;  // line: mbarrier_writes_after_arrival_write
  mbarrier_wait(&barrier, 0);
  out[threadIdx.x] = values[63 - threadIdx.x];  // line: mbarrier_writes_after_arrival
}

template <class... P>
cudaError_t run(const char* name, void (*kernel)(P...), unsigned threads, P... parameters) {
  return launch(nullptr, {name, 1, threads, 256}, kernel, parameters...);
}

}  // namespace

#define PLANTED(name)                          \
  cudaError_t name(float* out) {               \
    return run(#name, name##_kernel, 64, out); \
  }
SIMT_BARRIER_BUGS(PLANTED)
#undef PLANTED

}  // namespace simt::test
