#pragma once

#include <cmath>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_tile.h"

namespace athanor::cuda {

/// A thread's part of a block's product by fused multiply-adds, for f32 and f64: kRows x kColumns sums in
/// registers. Its rows and columns come in groups of 16 bytes, spread over the tile, so that a warp (4 x 8
/// threads, or 8 x 4 in a narrow tile) reads few distinct addresses of a tile, in neighbouring banks: (kRows
/// + kColumns) reads for kRows * kColumns multiply-adds.
///
/// A tile lies in shared memory with its rows side by side, depth by depth, for a thread reads neighbours of
/// one depth. What global memory has along the depth is thus written across, one row of several depths at a
/// time; the rows of each depth are permuted (an exclusive or) so that such a write meets every bank once.
template <class T, class Tile> class FmaProduct {
 public:
  using Stored = T;
  static constexpr int kThreads = Tile::kThreads;
  static constexpr int kDepth = static_cast<int>(step_depth(Tile::kM, Tile::kN, sizeof(T)));
  static constexpr int kRows = 8, kColumns = Tile::kSums / kRows;
  static constexpr int kGroup = kVec<T>;
  static constexpr int kGroups = kRows / kGroup;
  /// Rows of the product that stage() writes at a time, and their pitch, at which neither a row nor a column
  /// meets a bank twice.
  static constexpr int kStageRows = Tile::kM / kGroups, kStagePitch = Tile::kN + 1;

  template <int kExtent, int kPackets>
  __device__ __forceinline__ static void put(T* tile, bool deep, PacketPlace place,
                                             const Vec<T, kGroup> (&packets)[kPackets]) {
#pragma unroll
    for (int i = 0; i < kPackets; ++i) {
      const int line = place.across + i * place.step;
      if (deep) {
#pragma unroll
        for (int v = 0; v < kGroup; ++v) tile[at<kExtent>(line, place.along + v)] = packets[i][v];
      } else {
        store(tile + at<kExtent>(place.along, line), packets[i]);
      }
    }
  }

  __device__ __forceinline__ FmaProduct() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums_[i][j] = 0;
  }

  /// Adds the product of two tiles. (Whether they came along the depth was put()'s business.)
  __device__ __forceinline__ void multiply(const T* left_tile, bool, const T* right_tile, bool) {
    const ThreadOrigin origin;
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      Vec<T, kGroup> left[kRows / kGroup], right[kColumns / kGroup];
#pragma unroll
      for (int g = 0; g < kRows / kGroup; ++g)
        left[g] = load<kGroup>(left_tile + at<Tile::kM>(g * kStageRows + origin.row, depth));
#pragma unroll
      for (int g = 0; g < kColumns / kGroup; ++g)
        right[g] = load<kGroup>(right_tile + at<Tile::kN>(origin.column_of(g * kGroup), depth));
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          sums_[i][j] = std::fma(left[i / kGroup][i % kGroup], right[j / kGroup][j % kGroup], sums_[i][j]);
    }
  }

  /// Writes the rows [group * kStageRows, (group + 1) * kStageRows) of the block's product to shared memory.
  __device__ __forceinline__ void stage(int group, T* to) const {
    const ThreadOrigin origin;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (g != group) continue;  // registers have no index
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          to[(origin.row + i) * kStagePitch + origin.column_of(j)] = sums_[g * kGroup + i][j];
    }
  }

 private:
  template <int kExtent> __device__ __forceinline__ static int at(int row, int depth) {
    constexpr int kBanks = 128 / static_cast<int>(sizeof(T));  // elements that move at once
    constexpr int kTurn = (kBanks < kExtent ? kBanks : kExtent) / (kDepth / kGroup);
    static_assert(kTurn % kGroup == 0);
    return depth * kExtent + (row ^ depth / kGroup * kTurn);
  }
  /// Where in the block's product the groups of this thread are; computed when needed.
  struct ThreadOrigin {
    int row, column;

    __device__ __forceinline__ ThreadOrigin() {
      constexpr int kAcross = Tile::kN / kColumns, kWarpColumns = kAcross < 8 ? kAcross : 8;
      const int thread = afresh(static_cast<int>(threadIdx.x)), warp = thread / 32, lane = thread % 32;
      row = (warp / (kAcross / kWarpColumns) * (32 / kWarpColumns) + lane / kWarpColumns) * kGroup;
      column = (warp % (kAcross / kWarpColumns) * kWarpColumns + lane % kWarpColumns) * kGroup;
    }
    __device__ __forceinline__ int column_of(int j) const {
      constexpr int kSpread = Tile::kN / (kColumns / kGroup);
      return j / kGroup * kSpread + column + j % kGroup;
    }
  };

  T sums_[kRows][kColumns];
};

}  // namespace athanor::cuda
