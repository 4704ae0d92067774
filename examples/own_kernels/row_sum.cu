#include <simt/launch.h>

#include "row_sum.h"

// nvcc compiles this file for a GPU, and g++ for the emulator.

namespace {

constexpr int kThreads = 128;

// Halves the partial sums of a block until one is left.
template <bool WithBarrier> __global__ void row_sum_kernel(int cols, const float* x, float* y) {
  __shared__ float partial[kThreads];
  const float* row = x + static_cast<long long>(blockIdx.x) * cols;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += kThreads) sum += row[i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    if (WithBarrier) __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = partial[0];
}

}  // namespace

cudaError_t row_sum(int rows, int cols, const float* x, float* y, cudaStream_t stream) {
  const simt::Launch how{.name = "row_sum", .grid = static_cast<unsigned>(rows), .block = kThreads};
  return simt::launch(stream, how, row_sum_kernel<true>, cols, x, y);
}

cudaError_t row_sum_racy(int rows, int cols, const float* x, float* y, cudaStream_t stream) {
  const simt::Launch how{.name = "row_sum_racy", .grid = static_cast<unsigned>(rows), .block = kThreads};
  return simt::launch(stream, how, row_sum_kernel<false>, cols, x, y);
}
