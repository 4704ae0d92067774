#pragma once

#include "kernels/cuda/launch.h"

namespace athanor::cuda {

/// Adds up what the threads of a block hold, across columns: thread t has W sums of column t % across, a
/// power of two. The first `across` threads then have the column's. In a tree, so in one order. `shared` has
/// kThreads * W elements and may be used again after a barrier.
template <int kThreads, int W, class A>
__device__ __forceinline__ void add_up_columns(A (&sums)[W], int across, A* shared) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int v = 0; v < W; ++v) shared[v * kThreads + thread] = sums[v];
  for (int half = kThreads / 2; half >= across; half /= 2) {
    __syncthreads();
    if (thread < half) {
#pragma unroll
      for (int v = 0; v < W; ++v) shared[v * kThreads + thread] += shared[v * kThreads + thread + half];
    }
  }
#pragma unroll
  for (int v = 0; v < W; ++v) sums[v] = shared[v * kThreads + thread];
}

}  // namespace athanor::cuda
