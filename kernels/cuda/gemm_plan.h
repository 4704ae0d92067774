#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/grid_partition.h"

// How our own products are divided among blocks: decided here, for gemm() and for the account alike. No CUDA
// types, so that a build without it can ask. The order of a sum follows from it, and so do the bits.

namespace athanor::cuda {

/// The part of a product that a block computes.
struct BlockTile {
  std::int64_t rows, columns, threads;

  bool operator==(const BlockTile&) const = default;
};
inline constexpr BlockTile kNarrowTile{64, 16, 32}, kSmallTile{64, 64, 128}, kLargeTile{128, 128, 256};

/// How deep a step of a block with that tile is, for factors of `element` bytes.
constexpr std::int64_t step_depth(std::int64_t rows, std::int64_t columns, std::int64_t element) {
  if (element <= 2) return 64 / element;
  return rows * columns * element > 32768 ? 8 : 16;
}

/// y [m, n] = a [m, k] b [k, n], `batches` of them, each the sum of `summed` products.
struct GemmShape {
  std::int64_t m, n, k;
  std::int64_t batches = 1, summed = 1;
  /// Elements of y, one dense run that is written whole, so that the depth may be cut; 0: it may not.
  std::int64_t cuttable = 0;
};

/// Into how many pieces the depth of a product is cut, whose result has `tiles` tiles and `y_size` sums of
/// `sum_bytes`: enough blocks for every multiprocessor of a large GPU to hide waiting, in pieces that are not
/// all overhead, and buffers of at most 256 MiB.
inline std::int64_t split_pieces(std::int64_t tiles, std::int64_t threads, std::int64_t steps,
                                 std::int64_t y_size, std::int64_t sum_bytes) {
  const std::int64_t wanted = kMultiprocessors * (512 / threads), longest = steps / 8,
                     room = (std::int64_t{1} << 28) / sum_bytes / std::max<std::int64_t>(y_size, 1);
  return std::clamp<std::int64_t>(std::min({wanted / tiles, longest, room}), 1, 1024);
}

struct GemmPlan {
  BlockTile tile;
  std::int64_t depth;             ///< of a step
  std::int64_t tiles_m, tiles_n;  ///< of y, in one batch
  std::int64_t steps;             ///< of one product
  std::int64_t pieces;            ///< of the depth
  std::int64_t sum_bytes;         ///< of a sum: f32, or f64 for f64
  /// Of the sums of pieces, which a second kernel adds up; 0 where there is one piece.
  std::int64_t partial_bytes;

  /// For factors of `element` bytes; 8: f64. The large tile moves half the bytes of the small one, once there
  /// are enough of it.
  GemmPlan(const GemmShape& z, std::int64_t element) : GemmPlan(z, element, tile_of(z, element)) {}
  GemmPlan(const GemmShape& z, std::int64_t element, const BlockTile& chosen)
      : tile(chosen),
        depth(step_depth(tile.rows, tile.columns, element)),
        tiles_m((z.m + tile.rows - 1) / tile.rows),
        tiles_n((z.n + tile.columns - 1) / tile.columns),
        steps((z.k + depth - 1) / depth),
        pieces(1),
        sum_bytes(element == 8 ? 8 : 4) {
    if (z.cuttable > 0)
      pieces =
          split_pieces(tiles_m * tiles_n * z.batches, tile.threads, steps * z.summed, z.cuttable, sum_bytes);
    partial_bytes = pieces == 1 ? 0 : pieces * z.cuttable * sum_bytes;
  }

 private:
  static BlockTile tile_of(const GemmShape& z, std::int64_t element) {
    if (z.n <= 16) return kNarrowTile;
    const std::int64_t large = (z.m + 127) / 128 * ((z.n + 127) / 128) * z.batches;
    return element != 8 && z.m > 64 && z.n > 64 && large >= kMultiprocessors ? kLargeTile : kSmallTile;
  }
};

/// Whether a product of few rows is computed as its transpose, of few columns, for which there is a tile.
constexpr bool multiplies_transposed(std::int64_t m, std::int64_t n) {
  return m <= 16 && n > 16;
}

/// Whether our own product y [m, n] of half types, k deep, can also sum its columns: whole packets, and
/// enough tiles that its depth would not be cut.
inline bool product_sums_columns(const GemmShape& z) {
  GemmShape cut = z;
  cut.cuttable = z.m * z.n;
  return z.n % 8 == 0 && GemmPlan(cut, 2, z.n <= 16 ? kNarrowTile : kSmallTile).pieces == 1;
}

/// How [rows, n] is cut to sum its columns, `width` of them by a thread: biases and depthwise filters.
inline ColumnCut column_sums_cut(std::int64_t rows, std::int64_t n, int width) {
  return {rows, n, width, kMultiprocessors * 4, 16};
}

}  // namespace athanor::cuda
