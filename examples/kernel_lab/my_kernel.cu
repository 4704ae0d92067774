#include "my_kernel.h"

// Your kernel. Copy this file, and my_kernel.h if what must come out is something else, and run
//   scripts/kernel_lab.sh my_kernel

constexpr int kThreads = 256;

__global__ void my_kernel(int n, const float* x, float* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  // Fill in: write y[i]. Which threads must not, and what do the first and the last one read?
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  launch({"my_kernel", blocks(size.cols, kThreads), kThreads}, my_kernel, size.cols, x[0], y);
}
