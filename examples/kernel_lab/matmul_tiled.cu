#include "matmul.h"

// Rung 2: a block computes 64 x 64 elements of y from tiles in shared memory, a thread 4 x 4 of them in
// registers. A number that was read once serves 64 products.

constexpr int kTile = 64, kDepth = 16, kEach = 4, kThreads = 256;

// A tile's 64 rows x 16 depths, stored depth by depth; one float more a line than needed keeps writes off one
// bank.
using Tile = float[kDepth][kTile + 1];

__device__ void load_tile(Tile& tile, const float* x, int first_row, int rows, int first_depth, int cols) {
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kDepth; at += kThreads) {
    const int row = at / kDepth, depth = at % kDepth;
    const int i = first_row + row, k = first_depth + depth;
    tile[depth][row] = i < rows && k < cols ? x[i * cols + k] : 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    matmul_tiled(const float* a, const float* b, float* y, int rows, int cols) {
  __shared__ Tile left, right;
  const int top = static_cast<int>(blockIdx.y) * kTile, side = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / 16, column = static_cast<int>(threadIdx.x) % 16;
  float sums[kEach][kEach] = {};
  for (int depth = 0; depth < cols; depth += kDepth) {
    load_tile(left, a, top, rows, depth, cols);
    load_tile(right, b, side, cols, depth, cols);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] += left[k][row + 16 * i] * right[k][column + 16 * j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const int m = top + row + 16 * i, n = side + column + 16 * j;
      if (m < rows && n < cols) y[m * cols + n] = sums[i][j];
    }
  }
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  const dim3 grid(blocks(size.cols, kTile), blocks(size.rows, kTile));
  launch({"matmul_tiled", grid, kThreads}, matmul_tiled, x[0], x[1], y, size.rows, size.cols);
}
