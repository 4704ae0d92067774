// Explained in docs/own_op.md.
#include <simt/launch.h>

#include "formulas.h"
#include "soft_shrink_cuda.h"

// nvcc compiles this file for a GPU, and g++ for the emulator.

namespace {

constexpr int kThreads = 256;

simt::Launch blocks_for(const char* name, std::int64_t n) {
  return {.name = name, .grid = static_cast<unsigned>((n + kThreads - 1) / kThreads), .block = kThreads};
}

__device__ std::int64_t my_element() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

// Reads 4 bytes and writes 4 for each element,
__global__ void forward(std::int64_t n, float lambda, const float* x, float* y) {
  const std::int64_t i = my_element();
  if (i < n) y[i] = shrunk(x[i], lambda);
}

// and reads 8 here.
__global__ void backward(std::int64_t n, float lambda, const float* x, const float* dy, float* dx) {
  const std::int64_t i = my_element();
  if (i < n) dx[i] = dy[i] * shrunk_slope(x[i], lambda);
}

}  // namespace

cudaError_t soft_shrink_forward(std::int64_t n, float lambda, const float* x, float* y, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return simt::launch(stream, blocks_for("soft_shrink", n), forward, n, lambda, x, y);
}

cudaError_t soft_shrink_backward(std::int64_t n, float lambda, const float* x, const float* dy, float* dx,
                                 cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return simt::launch(stream, blocks_for("soft_shrink_backward", n), backward, n, lambda, x, dy, dx);
}
