#pragma once

#include <cstdint>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/gemm_call.h"

// A product of half types that also sums the columns of its result, and their squares: what a batch norm
// after a convolution would otherwise read y once more for. A block adds up the columns of its tile while it
// is in shared memory on its way out, and writes one row of partial sums, 1/16 of the tile's bytes at most; a
// small kernel adds up the rows in double and in a fixed order. What is summed are the values as y has them,
// rounded.

namespace athanor::cuda {

/// A dense matrix [m, n] as the result, with its sums [2, n] f32. Results are written in packets.
struct SummedMatrixTo : MatrixTo {
  float* sums;
  float* partials = nullptr;  ///< [tiles down y, 2, n]: set by gemm()
};

/// The sums of one column of a block's tile, in the thread of that number.
template <class Tile, class Product, class T> class TileSums {
 public:
  /// Adds rows [group * kStageRows, (group + 1) * kStageRows), which write_tile() has staged, as far as y has
  /// them. Of the rows beyond it a NaN in the other factor may have made NaN.
  __device__ __forceinline__ void add(const float* stage, std::int64_t first_row, int group, std::int64_t m) {
    static_assert(Tile::kThreads >= Tile::kN);
    const int column = static_cast<int>(threadIdx.x);
    if (column >= Tile::kN) return;
    const std::int64_t left = m - first_row - group * Product::kStageRows;
    const int rows = left < Product::kStageRows ? static_cast<int>(left) : Product::kStageRows;
    for (int row = 0; row < rows; ++row) {
      const float value = static_cast<float>(T(stage[row * Product::kStagePitch + column]));
      sum_ += value;
      squares_ = std::fma(value, value, squares_);
    }
  }
  __device__ __forceinline__ void write(const SummedMatrixTo& to, int tile_row, std::int64_t first_column,
                                        std::int64_t n) const {
    const std::int64_t column = first_column + threadIdx.x;
    if (threadIdx.x >= Tile::kN || column >= n) return;
    float* const row = to.partials + std::int64_t{tile_row} * 2 * n + column;
    row[0] = sum_, row[n] = squares_;
  }

 private:
  float sum_ = 0, squares_ = 0;
};

/// write_tile() of a product that sums its columns.
template <class Tile, class T, class Left, class Right, class Product>
__device__ __forceinline__ void write_tile(const Gemm<T, Left, Right, SummedMatrixTo>& g, Product& product,
                                           float* stage, int tile_row, int tile_column) {
  TileSums<Tile, Product, T> sums;
#pragma unroll 1
  for (int group = 0; group < Product::kGroups; ++group) {
    __syncthreads();
    product.stage(group, stage);
    __syncthreads();
    write_packets<Tile, Product>(g, stage, tile_row, tile_column, group);
    sums.add(stage, std::int64_t{tile_row} * Tile::kM, group, g.size.m);
  }
  sums.write(g.to, tile_row, std::int64_t{tile_column} * Tile::kN, g.size.n);
}

/// sums [2, n] from partials [rows, 2, n].
template <class A>
__global__ void __launch_bounds__(1024)
    finish_column_sums(const A* partials, std::int64_t rows, std::int64_t n, A* sums) {
  const auto total = total_columns(partials, rows, n);
  if (!total.valid) return;
  sums[total.channel] = A(total.first);
  sums[n + total.channel] = A(total.second);
}

}  // namespace athanor::cuda
