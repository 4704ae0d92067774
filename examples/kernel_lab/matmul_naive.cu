#include "matmul.h"

// Rung 1: a thread computes one element of y, and reads a row of a and a row of b for it.

constexpr int kSide = 16;

__global__ void matmul_naive(const float* a, const float* b, float* y, int rows, int cols) {
  const int i = static_cast<int>(blockIdx.y * kSide + threadIdx.y);
  const int j = static_cast<int>(blockIdx.x * kSide + threadIdx.x);
  if (i >= rows || j >= cols) return;
  float sum = 0;
  for (int k = 0; k < cols; ++k) sum += a[i * cols + k] * b[j * cols + k];
  y[i * cols + j] = sum;
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  const dim3 grid(blocks(size.cols, kSide), blocks(size.rows, kSide)), block(kSide, kSide);
  launch({"matmul_naive", grid, block}, matmul_naive, x[0], x[1], y, size.rows, size.cols);
}
