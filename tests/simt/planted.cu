#include "tests/simt/kernels.h"

// One bug in each kernel. A line that a report must name is marked with what it is called in the tests.

namespace simt::test {
namespace {

__global__ void divergent_barrier_kernel(float* out) {
  if (threadIdx.x < 40) {
    out[threadIdx.x] = 1;
    __syncthreads();  // line: divergent_barrier_then
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();  // line: divergent_barrier_else
  }
}

__global__ void early_return_kernel(float* out) {
  if (threadIdx.x >= 50) return;
  __syncthreads();  // line: early_return
  out[threadIdx.x] = 1;
}

__global__ void wrong_mask_kernel(float* out) {
  float v = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) v += __shfl_xor_sync(~0u, v, 1);  // line: wrong_mask
  out[threadIdx.x] = v;
}

__global__ void mask_without_self_kernel(float* out) {
  const float v = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = __shfl_sync(0x7fffffffu, v, 0);  // line: mask_without_self
}

__global__ void lane_outside_mask_kernel(float* out) {
  const float v = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = v;
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, v, 20);  // line: lane_outside_mask
}

__global__ void different_collectives_kernel(float* out) {
  float v = static_cast<float>(threadIdx.x);
  if (threadIdx.x % 2 == 0) {
    v = __shfl_xor_sync(~0u, v, 1);  // line: different_collectives_even
  } else {
    v = __shfl_down_sync(~0u, v, 1);  // line: different_collectives_odd
  }
  out[threadIdx.x] = v;
}

__global__ void uninitialised_dynamic_kernel(float* out) {
  float* shared = static_cast<float*>(dynamic_shared_memory());
  if (threadIdx.x != 9) shared[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];  // line: uninitialised_dynamic
}

template <class... P>
cudaError_t planted(const char* name, void (*kernel)(P...), unsigned threads, P... parameters) {
  return launch(name, kernel, 1, threads, 256, nullptr, std::tuple<P...>(parameters...));
}

}  // namespace

cudaError_t divergent_barrier(float* out) {
  return planted("divergent_barrier", divergent_barrier_kernel, 64, out);
}
cudaError_t early_return(float* out) {
  return planted("early_return", early_return_kernel, 64, out);
}
cudaError_t wrong_mask(float* out) {
  return planted("wrong_mask", wrong_mask_kernel, 64, out);
}
cudaError_t mask_without_self(float* out) {
  return planted("mask_without_self", mask_without_self_kernel, 32, out);
}
cudaError_t lane_outside_mask(float* out) {
  return planted("lane_outside_mask", lane_outside_mask_kernel, 32, out);
}
cudaError_t different_collectives(float* out) {
  return planted("different_collectives", different_collectives_kernel, 32, out);
}
cudaError_t uninitialised_dynamic(float* out) {
  return planted("uninitialised_dynamic", uninitialised_dynamic_kernel, 64, out);
}

}  // namespace simt::test
