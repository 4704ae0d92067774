#pragma once

#include <cuda_runtime.h>

#include "simt/async_copy.h"
#include "simt/launch.h"

// y = a b^T in blocks of 16 x 16 threads, one for each element of a tile of y. A step multiplies a tile of 16
// rows x 32 depths of a by one of b.

constexpr int kTile = 16, kDepth = 32, kStages = 3;

/// The two tiles of a step. Lines are 36 floats apart, so that lanes read different banks.
struct Stage {
  float left[kTile][kDepth + 4], right[kTile][kDepth + 4];
};

/// a [rows, depth], b [columns, depth], y [rows, columns]. Rows and columns are multiples of 16, depth is one
/// of 32.
struct Problem {
  const float *a, *b;
  float* y;
  int rows, columns, depth;
};

/// What a thread does is told to the tests, which define these.
struct Here {
  int block, thread;
};
bool note_copy(Here here, int step);
void note_group(Here here);
void note_wait(Here here, int but);
void note_multiply(Here here);

__device__ inline Here here() {
  return {static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x),
          static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x)};
}

/// Starts this thread's copy for a step: 16 bytes. All 256 threads together copy both tiles.
__device__ inline void start_copy(Stage& stage, const Problem& problem, int step) {
  const int thread = here().thread, line = thread / 8 % kTile, first = thread % 8 * 4;
  const bool left = thread < 128;
  if (!note_copy(here(), step)) return;
  const int row = static_cast<int>(left ? blockIdx.y : blockIdx.x) * kTile + line;
  simt::cp_async<16>((left ? stage.left : stage.right)[line] + first,
                     (left ? problem.a : problem.b) + row * problem.depth + step * kDepth + first);
}

/// The copies that this thread has started since its last group are a group, perhaps an empty one.
__device__ inline void close_group() {
  note_group(here());
  simt::cp_async_commit();
}

/// Waits until all groups of this thread are done but the kGroups latest.
template <int kGroups> __device__ inline void wait_for_all_but() {
  note_wait(here(), kGroups);
  simt::cp_async_wait<kGroups>();
}

/// sum + this thread's products of a step. Reads what 16 threads have copied.
__device__ inline float multiply(const Stage& stage, float sum) {
  note_multiply(here());
  for (int k = 0; k < kDepth; ++k) sum += stage.left[threadIdx.y][k] * stage.right[threadIdx.x][k];
  return sum;
}

__device__ inline void store(const Problem& problem, float sum) {
  const auto row = static_cast<int>(blockIdx.y * kTile + threadIdx.y),
             column = static_cast<int>(blockIdx.x * kTile + threadIdx.x);
  problem.y[row * problem.columns + column] = sum;
}

/// Of product.cu.
cudaError_t multiply(const Problem& problem);
