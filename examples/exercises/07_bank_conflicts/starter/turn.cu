#include "turn.h"

constexpr int kTile = 32;
constexpr int kRows = 8;  // of a tile at a time: each thread moves four elements

__global__ void turn(const float* x, float* y, int rows, int cols) {
  __shared__ float tile[kTile][kTile];
  const int left = static_cast<int>(blockIdx.x) * kTile, top = static_cast<int>(blockIdx.y) * kTile;
  const int column = static_cast<int>(threadIdx.x);

  for (int row = static_cast<int>(threadIdx.y); row < kTile; row += kRows) {
    const int i = top + row, j = left + column;
    if (i < rows && j < cols) tile[row][column] = x[i * cols + j];
  }
  __syncthreads();
  for (int row = static_cast<int>(threadIdx.y); row < kTile; row += kRows) {
    const int i = top + column, j = left + row;
    if (i < rows && j < cols) y[j * rows + i] = tile[column][row];
  }
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  const dim3 grid(blocks(size.cols, kTile), blocks(size.rows, kTile)), block(kTile, kRows);
  launch({"turn", grid, block}, turn, x[0], y, size.rows, size.cols);
}
