#include "matmul.h"
#include "simt/async_copy.h"
#include "simt/tensor_core.h"

// Rung 4: cp.async copies the next three pairs of tiles while one is multiplied. Nothing waits in registers,
// so numbers are rounded to tf32 after they were loaded from shared memory.

constexpr int kTile = 64, kDepth = 32, kThreads = 128, kStages = 4;
constexpr int kPieces = kDepth / 4;  // of 16 bytes, in a line

using Tile = float[kTile][kDepth];
struct Stage {
  Tile left, right;
};

// Piece p of a line is stored at p ^ line % 8: ldmatrix reads one piece of eight lines at once, and without
// this all of them would lie in the same four banks.
__device__ float* piece(Tile& tile, int line, int p) {
  return &tile[line][(p ^ line % 8) * 4];
}

__device__ void start_copy(Tile& tile, const float* x, int first_row, int rows, int first_depth, int cols) {
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kPieces; at += kThreads) {
    const int line = at / kPieces, p = at % kPieces;
    const int i = first_row + line, k = first_depth + p * 4;
    const bool inside = i < rows && k < cols;
    simt::cp_async<16>(piece(tile, line, p), inside ? x + i * cols + k : x, inside ? 16 : 0);
  }
}

__device__ void load_fragments(std::uint32_t (&parts)[4], Tile& tile, int line, int p) {
  simt::ldmatrix<4>(parts, piece(tile, line, p));
#pragma unroll
  for (std::uint32_t& part : parts) part = simt::to_tf32(__uint_as_float(part));
}

__global__ void __launch_bounds__(kThreads)
    matmul_pipeline(const float* a, const float* b, float* y, int rows, int cols) {
  Stage* const stages = lab::dynamic_shared<Stage>();
  const int top = static_cast<int>(blockIdx.y) * kTile, side = static_cast<int>(blockIdx.x) * kTile;
  const int steps = (cols + kDepth - 1) / kDepth;
  const auto start = [&](int step) {
    if (step < steps) {
      start_copy(stages[step % kStages].left, a, top, rows, step * kDepth, cols);
      start_copy(stages[step % kStages].right, b, side, cols, step * kDepth, cols);
    }
    simt::cp_async_commit();  // a group for each step, so that waiting can count groups
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 2 * 32, column = warp % 2 * 32;
  const int inner = lane % 8, second = lane / 8 % 2, half = lane / 16;
  float sums[2][4][4] = {};
  for (int step = 0; step + 1 < kStages; ++step) start(step);
  for (int step = 0; step < steps; ++step) {
    simt::cp_async_wait<kStages - 2>();  // this thread's copies for the step have arrived
    __syncthreads();                     // everybody's have, and the step before is multiplied
    start(step + kStages - 1);           // into the tiles of the step before
    Stage& stage = stages[step % kStages];
    for (int k = 0; k < kPieces; k += 2) {
      std::uint32_t left[2][4], right[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_fragments(left[i], stage.left, row + 16 * i + 8 * second + inner, k + half);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        load_fragments(right[j], stage.right, column + 16 * j + 8 * half + inner, k + second);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          simt::mma<simt::Factor::tf32>(sums[i][j], left[i], right[j / 2][j % 2 * 2],
                                        right[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int e = 0; e < 4; ++e) {
        const simt::Element at = simt::fragment::sums(lane, e);
        const int m = top + row + 16 * i + at.row, n = side + column + 8 * j + at.column;
        if (m < rows && n < cols) y[m * cols + n] = sums[i][j][e];
      }
    }
  }
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  const dim3 grid(blocks(size.cols, kTile), blocks(size.rows, kTile));
  launch({"matmul_pipeline", grid, kThreads, kStages * sizeof(Stage)}, matmul_pipeline, x[0], x[1], y,
         size.rows, size.cols);
}
