#include "row_max.h"

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// The maximum over a warp, in every lane of it.
__device__ float warp_max(float value) {
  for (int lanes = 16; lanes > 1; lanes /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, lanes));
  return value;
}

// The maximum over the block, in every thread of it.
__device__ float block_max(float value) {
  __shared__ float maxima[kWarps];
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = value;
  float largest = value;
  for (int warp = 0; warp < kWarps; ++warp) largest = fmaxf(largest, maxima[warp]);
  return largest;
}

__global__ void row_max(const float* x, float* y, int cols) {
  const int thread = static_cast<int>(threadIdx.x);
  x += static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(cols);
  float largest = 0;
  for (int j = thread; j < cols; j += kThreads) largest = fmaxf(largest, x[j]);
  largest = block_max(largest);
  if (thread == 0) y[blockIdx.x] = largest;
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  launch({"row_max", static_cast<unsigned>(size.rows), kThreads}, row_max, x[0], y, size.cols);
}
