#pragma once

#include "kernels/cuda/group.h"
#include "kernels/cuda/launch.h"

namespace athanor::cuda {

/// Adds up what the threads of a block hold, across columns: thread t has W sums of column t % across, a
/// power of two. The first `across` threads then have the column's. In a tree, so in one order. `shared` has
/// kThreads * W / 2 elements and may be used again after a barrier. Every thread of the block calls it.
template <int kThreads, int W, class A>
__device__ __forceinline__ void add_up_columns(A (&sums)[W], int across, A* shared) {
  constexpr int kHalf = kThreads / 2;
  const int thread = static_cast<int>(threadIdx.x);
  for (int half = kHalf; half >= across && half >= kWarp; half /= 2) {
    __syncthreads();
    if (thread >= half && thread < 2 * half) {
#pragma unroll
      for (int v = 0; v < W; ++v) shared[v * kHalf + thread - half] = sums[v];
    }
    __syncthreads();
    if (thread < half) {
#pragma unroll
      for (int v = 0; v < W; ++v) sums[v] += shared[v * kHalf + thread];
    }
  }
  for (int half = kWarp / 2; half >= across; half /= 2) {
#pragma unroll
    for (int v = 0; v < W; ++v) sums[v] += __shfl_down_sync(0xffffffffu, sums[v], half);
  }
}

}  // namespace athanor::cuda
