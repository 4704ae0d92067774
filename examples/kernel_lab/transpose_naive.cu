#include "transpose.h"

// One thread per element, as it comes. The threads of a warp read neighbours in a row of x, and write
// elements of y that are `rows` apart: each into a sector of its own.

constexpr int kTile = 32;

__global__ void transpose_naive(const float* x, float* y, int rows, int cols) {
  const int j = static_cast<int>(blockIdx.x * kTile + threadIdx.x);
  const int i = static_cast<int>(blockIdx.y * kTile + threadIdx.y);
  if (i < rows && j < cols) y[j * rows + i] = x[i * cols + j];
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  const dim3 grid(blocks(size.cols, kTile), blocks(size.rows, kTile)), block(kTile, kTile);
  launch({"transpose_naive", grid, block}, transpose_naive, x[0], y, size.rows, size.cols);
}
