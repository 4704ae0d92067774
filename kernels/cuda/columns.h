#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/grid_partition.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.h"

// Sums down the columns of a matrix [R, C]: what batch norm, the parameters of every norm, biases and
// depthwise filters need. A block takes a tile of neighbouring channels and a share of the rows; its threads
// sum into registers and join them by a tree. The blocks' partial sums meet in a second, small kernel, in
// double and in a fixed order. How the work is cut depends on the shape alone, and so do the bits.

namespace athanor::cuda {

/// How [rows, channels] is cut, for kernels.
struct ColumnTiling : ColumnCut {
  using ColumnCut::ColumnCut;
  explicit ColumnTiling(const ColumnCut& cut) : ColumnCut(cut) {}

  /// A thread's tile: V channels from `channel` on, of `count` rows. Elements of its first row begin at
  /// `first`, those of the next, `step` rows down, `stride` further. No rows beyond the last channel, but
  /// such a thread must come along to the barriers.
  struct ThreadTile {
    std::int64_t channel, split, row, first, stride;
    int count, step, column, below;
    bool inside;
  };
  template <int V, int kThreads = kColumnThreads> __device__ __forceinline__ ThreadTile thread_tile() const {
    return thread_tile<V, kThreads>(blockIdx.x);
  }
  /// The same of a block that takes the place of `block`.
  template <int V, int kThreads = kColumnThreads>
  __device__ __forceinline__ ThreadTile thread_tile(unsigned block) const {
    const int thread = static_cast<int>(threadIdx.x);
    ThreadTile at;
    at.step = kThreads >> shift;
    at.column = thread & ((1 << shift) - 1);
    at.below = thread >> shift;
    at.split = static_cast<std::int64_t>(block) / tiles;
    at.channel = (((block - at.split * tiles) << shift) + at.column) * V;
    at.inside = at.channel < channels;
    at.row = at.split * share + at.below;
    const std::int64_t wanted = (at.split + 1) * share, end = wanted < rows ? wanted : rows;
    at.count = at.inside && at.row < end ? static_cast<int>((end - at.row + at.step - 1) / at.step) : 0;
    at.first = at.row * channels + at.channel;
    at.stride = at.step * channels;
    return at;
  }
};

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

/// Calls f(element, n) for a thread's rows, n of them at a time: U, an integral_constant, then single ones.
template <int U, class F>
__device__ __forceinline__ void for_each_rows(const ColumnTiling::ThreadTile& at, const F& f) {
  std::int64_t here = at.first;
  int left = at.count;
  for (; left >= U; left -= U, here += U * at.stride) f(here, std::integral_constant<int, U>());
  for (; left > 0; --left, here += at.stride) f(here, std::integral_constant<int, 1>());
}

/// Joins the sums of a block's threads, kSums for each of a thread's V channels, and writes them: partials
/// [splits, kSums, C]. `shared` has kThreads / 2 * kSums * V elements.
template <int V, int kSums = 2, int kThreads = kColumnThreads, class A>
__device__ __forceinline__ void write_partials(const ColumnTiling& tiling, const ColumnTiling::ThreadTile& at,
                                               A (&sums)[kSums * V], A* shared, A* partials) {
  add_up_columns<kThreads>(sums, 1 << tiling.shift, shared);
  if (at.below > 0 || !at.inside) return;
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
#pragma unroll
    for (int i = 0; i < V; ++i)
      partials[(at.split * kSums + k) * tiling.channels + at.channel + i] = sums[k * V + i];
  }
}

/// The launch of a kernel that calls total_columns().
inline Launch total_launch(const char* name, std::int64_t splits, std::int64_t channels) {
  unsigned warps = 1;
  while (warps < 32 && warps < splits) warps *= 2;
  return {name, dim3(static_cast<unsigned>((channels + 31) / 32)), dim3(32 * warps)};
}

/// The two totals of one channel.
struct ColumnTotals {
  std::int64_t channel;
  double first, second;
  bool valid;  ///< in this thread
};

/// Adds up partials [splits, 2, C]; every thread of the block calls it, one per channel gets the result.
template <class A>
__device__ __forceinline__ ColumnTotals total_columns(const A* partials, std::int64_t splits,
                                                      std::int64_t channels) {
  __shared__ double shared[2][16][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  ColumnTotals total{std::int64_t{blockIdx.x} * 32 + lane, 0, 0, false};
  if (total.channel < channels) {
#pragma unroll 4
    for (std::int64_t split = warp; split < splits; split += warps) {
      total.first += static_cast<double>(partials[split * 2 * channels + total.channel]);
      total.second += static_cast<double>(partials[(split * 2 + 1) * channels + total.channel]);
    }
  }
  for (int n = warps / 2; n > 0; n /= 2) {
    if (warp >= n && warp < 2 * n) {
      shared[0][warp - n][lane] = total.first;
      shared[1][warp - n][lane] = total.second;
    }
    __syncthreads();
    if (warp < n) {
      total.first += shared[0][warp][lane];
      total.second += shared[1][warp][lane];
    }
    __syncthreads();
  }
  total.valid = warp == 0 && total.channel < channels;
  return total;
}

}  // namespace athanor::cuda
