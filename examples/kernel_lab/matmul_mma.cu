#include "matmul.h"
#include "simt/tensor_core.h"

// Rung 3: tensor cores. A warp computes 32 x 32 elements of y by instructions that multiply 16 x 8 by 8 x 8.
// Where an element lies in the registers of a warp is written down in simt/fragments.h.

constexpr int kTile = 64, kDepth = 32, kThreads = 128;  // four warps, 2 x 2
constexpr int kPitch =
    kDepth + 4;  // floats of a line: ldmatrix reads eight lines at once, from different banks

using Tile = std::uint32_t[kTile][kPitch];

__device__ void load_tile(Tile& tile, const float* x, int first_row, int rows, int first_depth, int cols) {
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kDepth; at += kThreads) {
    const int row = at / kDepth, depth = at % kDepth;
    const int i = first_row + row, k = first_depth + depth;
    tile[row][depth] = simt::to_tf32(i < rows && k < cols ? x[i * cols + k] : 0);
  }
}

// The sums of a warp: 2 x 4 fragments of 16 x 8, four numbers of each in every lane.
struct Sums {
  float of[2][4][4] = {};

  // Adds the products of 8 depths. Lane l gives ldmatrix the address of line l % 8 of matrix l / 8: of a, 8
  // rows x 4 depths each, rows first; of b two fragments at a time, depths first.
  __device__ void multiply(const Tile& left, const Tile& right, int row, int column, int depth) {
    const int lane = static_cast<int>(threadIdx.x) % 32, line = lane % 8, second = lane / 8 % 2,
              half = lane / 16;
    std::uint32_t a[2][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      simt::ldmatrix<4>(a[i], &left[row + 16 * i + 8 * second + line][depth + 4 * half]);
#pragma unroll
    for (int j = 0; j < 2; ++j)
      simt::ldmatrix<4>(b[j], &right[column + 16 * j + 8 * half + line][depth + 4 * second]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        simt::mma<simt::Factor::tf32>(of[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
  __device__ void write(float* y, int row, int column, int rows, int cols) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const simt::Element at = simt::fragment::sums(lane, e);
          const int m = row + 16 * i + at.row, n = column + 8 * j + at.column;
          if (m < rows && n < cols) y[m * cols + n] = of[i][j][e];
        }
      }
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    matmul_mma(const float* a, const float* b, float* y, int rows, int cols) {
  __shared__ __align__(16) Tile left, right;
  const int top = static_cast<int>(blockIdx.y) * kTile, side = static_cast<int>(blockIdx.x) * kTile;
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp / 2 * 32, column = warp % 2 * 32;
  Sums sums;
  for (int depth = 0; depth < cols; depth += kDepth) {
    load_tile(left, a, top, rows, depth, cols);
    load_tile(right, b, side, cols, depth, cols);
    __syncthreads();
    for (int k = 0; k < kDepth; k += 8) sums.multiply(left, right, row, column, k);
    __syncthreads();
  }
  sums.write(y, top + row, side + column, rows, cols);
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  const dim3 grid(blocks(size.cols, kTile), blocks(size.rows, kTile));
  launch({"matmul_mma", grid, kThreads}, matmul_mma, x[0], x[1], y, size.rows, size.cols);
}
