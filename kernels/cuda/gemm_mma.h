#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_tile.h"
#include "simt/tensor_core.h"

namespace athanor::cuda {

/// A thread's part of a block's product on tensor cores, for f16 (sm_75 and later), bf16 and bytes (sm_80 and
/// later); elsewhere by multiply-adds of the same numbers in the same places. Bytes come along the depth.
///
/// A warp has fragments of 16 x 8 of the product, kDown x kAcross of them: lane l has, of each, columns 2 (l
/// % 4), + 1 of rows l / 4 and l / 4 + 8. A tile lies in shared memory line by line as it came, packet by
/// packet; ldmatrix turns those that came along the rows. Packets of a line are permuted (an exclusive or),
/// so that the same packet of 8 neighbouring lines, which one ldmatrix reads, lies in different banks.
template <class T, class Tile> class MmaProduct {
 public:
  using Stored = T;
  using Sum = GemmSum<T>;
  static constexpr int kThreads = Tile::kThreads;
  static constexpr int kDepth = static_cast<int>(step_depth(Tile::kM, Tile::kN, sizeof(T)));
  // A warp has 64 x 64 of the product where its threads have 128 sums, else 32 columns or all.
  static constexpr int kWarpColumns = Tile::kSums == 128 ? 64 : Tile::kN < 32 ? Tile::kN : 32;
  static constexpr int kWarpsAcross = Tile::kN / kWarpColumns;
  static constexpr int kWarpsDown = kThreads / 32 / kWarpsAcross;
  static constexpr int kDown = Tile::kM / kWarpsDown / 16, kAcross = Tile::kN / kWarpsAcross / 8;
  static_assert(kDown * kAcross * 4 == Tile::kSums && kAcross % 2 == 0);
  static constexpr int kGroups = kDown;
  static constexpr int kStageRows = 16 * kWarpsDown, kStagePitch = Tile::kN + 8;

  template <int kExtent, int kPackets>
  __device__ __forceinline__ static void put(T* tile, bool deep, PacketPlace place,
                                             const Vec<T, kVec<T>> (&packets)[kPackets]) {
#pragma unroll
    for (int i = 0; i < kPackets; ++i)
      store(MmaProduct::place<kExtent>(tile, deep, place.across + i * place.step, place.along), packets[i]);
  }
  /// Where in a tile the packet lies that starts at `along` of a line.
  template <int kExtent> __device__ __forceinline__ static T* place(T* tile, bool deep, int line, int along) {
    return tile + Lines<kExtent>(deep).at(line, along);
  }

  __device__ __forceinline__ MmaProduct() {
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums_[i][j][e] = 0;
  }

  /// Adds the product of two tiles, which came along the depth or not.
  __device__ __forceinline__ void multiply(const T* left, bool left_deep, const T* right, bool right_deep) {
    if constexpr (simt::has_mma(kFactor)) {
      multiply_fragments(left, left_deep, right, right_deep);
    } else {
      multiply_plainly(left, left_deep, right, right_deep);
    }
  }

  /// Writes the rows [group * kStageRows, (group + 1) * kStageRows) of the block's product to shared memory.
  __device__ __forceinline__ void stage(int group, Sum* to) const {
    const FragmentOrigin at;
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      if (i != group) continue;  // registers have no index
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) to[at.row(e) * kStagePitch + at.column(j, e)] = sums_[i][j][e];
    }
  }

 private:
  static constexpr simt::Factor kFactor = sizeof(T) == 1            ? simt::Factor::u8
                                          : std::is_same_v<T, Half> ? simt::Factor::f16
                                                                    : simt::Factor::bf16;
  static constexpr int kWidth = kVec<T>;      // of a packet, and as deep is a matrix of ldmatrix
  static constexpr int kDeeper = kWidth / 8;  // than of 16-bit numbers

  /// Where packets are kept in a tile of kExtent rows.
  template <int kExtent> struct Lines {
    bool deep;
    int length, shift, turns;

    __device__ __forceinline__ explicit Lines(bool is_deep) : deep(is_deep) {
      length = deep ? kDepth : kExtent;
      shift = deep ? shift_of(kDepth) : shift_of(kExtent);
      turns = deep ? turns_of(kDepth) : turns_of(kExtent);
    }
    /// The packet that starts at `along` of a line.
    __device__ __forceinline__ int at(int line, int along) const {
      return line * length + (along / kWidth ^ ((line >> shift) & (turns - 1))) * kWidth;
    }
    /// The same, where the packet is that of (row, depth).
    __device__ __forceinline__ int of(int row, int depth) const {
      return deep ? at(row, depth) : at(depth, row);
    }

   private:
    static constexpr int turns_of(int line) { return line < 8 * kWidth ? line / kWidth : 8; }
    static constexpr int shift_of(int line) { return turns_of(line) == 8 ? 0 : turns_of(line) == 4 ? 1 : 2; }
  };

  /// Where in the block's product the fragments of this thread's warp are; computed when needed.
  struct FragmentOrigin {
    int lane, first_row, first_column;

    __device__ __forceinline__ FragmentOrigin() {
      const int thread = afresh(static_cast<int>(threadIdx.x)), warp = thread / 32;
      lane = thread % 32;
      first_row = warp / kWarpsAcross * 16;
      first_column = warp % kWarpsAcross * (Tile::kN / kWarpsAcross);
    }
    /// Of element e of a fragment.
    __device__ __forceinline__ int row(int e) const { return first_row + lane / 4 + e / 2 * 8; }
    __device__ __forceinline__ int column(int j, int e) const {
      return first_column + j * 8 + lane % 4 * 2 + e % 2;
    }
  };

  /// Four 8 x 8 matrices, whose lines are their rows or else their columns.
  __device__ __forceinline__ static void load_matrices(std::uint32_t (&parts)[4], const T* line,
                                                       bool by_rows) {
    if (sizeof(T) == 1 || by_rows) {
      simt::ldmatrix<4>(parts, line);
    } else {
      simt::ldmatrix<4, true>(parts, line);
    }
  }

  __device__ __forceinline__ void multiply_fragments(const T* left, bool left_deep, const T* right,
                                                     bool right_deep) {
    const Lines<Tile::kM> left_lines(left_deep);
    const Lines<Tile::kN> right_lines(right_deep);
    // Which row of which of the four matrices this lane gives the address of.
    const FragmentOrigin at;
    const int inner = at.lane % 8, second = at.lane / 8 % 2 * 8, half = at.lane / 16 * 8;
    const int left_row = at.first_row + second + (left_deep ? inner : 0),
              left_depth = half * kDeeper + (left_deep ? 0 : inner);
    const int right_row = at.first_column + half + (right_deep ? inner : 0),
              right_depth = second * kDeeper + (right_deep ? 0 : inner);
#pragma unroll
    for (int depth = 0; depth < kDepth; depth += 2 * kWidth) {
      std::uint32_t a[kDown][4], b[kAcross / 2][4];
#pragma unroll
      for (int i = 0; i < kDown; ++i)  // rows 0 and 8 at depth 0, then at depth kWidth
        load_matrices(a[i], left + left_lines.of(left_row + i * kStageRows, left_depth + depth), left_deep);
#pragma unroll
      for (int j = 0; j < kAcross / 2; ++j)  // depths 0 and kWidth of column 0, then of column 8
        load_matrices(b[j], right + right_lines.of(right_row + j * 16, right_depth + depth), right_deep);
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j)
          simt::mma<kFactor>(sums_[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }

  // Four depths of bytes are multiplied at a time, as a word.
  using Number = std::conditional_t<sizeof(T) == 1, std::uint32_t, float>;
  static constexpr int kTogether = sizeof(T) == 1 ? 4 : 1;

  template <int kExtent>
  __device__ __forceinline__ static Number number(const T* tile, bool deep, int row, int depth) {
    const int along = deep ? depth : row;
    const T* const from = tile + Lines<kExtent>(deep).of(row, depth) + along % kWidth;
    if constexpr (sizeof(T) == 1) {
      return *reinterpret_cast<const std::uint32_t*>(from);
    } else {
      return static_cast<float>(*from);
    }
  }
  __device__ __forceinline__ static float multiply_add(float a, float b, float sum) {
    return std::fma(a, b, sum);
  }
  __device__ __forceinline__ static int multiply_add(std::uint32_t a, std::uint32_t b, int sum) {
    return simt::dot_of_bytes(a, b, sum);
  }

  __device__ __forceinline__ void multiply_plainly(const T* left, bool left_deep, const T* right,
                                                   bool right_deep) {
    const FragmentOrigin at;
#pragma unroll 1
    for (int depth = 0; depth < kDepth; depth += kTogether) {
      Number a[kDown][2], b[kAcross][2];
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          a[i][e] = number<Tile::kM>(left, left_deep, i * kStageRows + at.row(2 * e), depth);
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) b[j][e] = number<Tile::kN>(right, right_deep, at.column(j, e), depth);
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums_[i][j][e] = multiply_add(a[i][e / 2], b[j][e % 2], sums_[i][j][e]);
    }
  }

  Sum sums_[kDown][kAcross][4];
};

}  // namespace athanor::cuda
