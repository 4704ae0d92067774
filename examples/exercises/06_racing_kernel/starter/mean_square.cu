#include "mean_square.h"

constexpr int kThreads = 256;

__global__ void mean_square(const float* x, float* y, int cols) {
  __shared__ float sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const float* row = x + static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(cols);

  float sum = 0;
  for (int j = thread; j < cols; j += kThreads) sum += row[j] * row[j];
  sums[thread] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) y[blockIdx.x] = sums[0] / static_cast<float>(cols);
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  launch({"mean_square", static_cast<unsigned>(size.rows), kThreads}, mean_square, x[0], y, size.cols);
}
