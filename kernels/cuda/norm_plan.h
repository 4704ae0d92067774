#pragma once

#include <algorithm>

#include "kernels/cuda/grid_partition.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/norm_ops.h"

// How norms are divided among blocks. Sums down columns go through partial sums, [splits, 2, C], which the
// next kernel adds up.

namespace athanor::cuda {

// Batch norm
// ---------------------------------------------------------------------------------------------------

/// A block has half a multiprocessor, and 128 bytes of a row, which is one line of the cache.
inline constexpr int kNormThreads = 512;

/// How a pass over x [R, C] that sums is cut, with channels `width` at a time. Every block of the next pass
/// adds up the partial sums of its channels: of a wave of blocks, 128 KB at most.
inline ColumnCut norm_cut(const Tensor& x, int width) {
  const std::int64_t channels = x.dim(-1), rows = channels > 0 ? x.numel() / channels : 0;
  return {rows, channels, width, 2 * kMultiprocessors, 8, kNormThreads, width == 1 ? 5 : 3};
}

// Layer norm
// ---------------------------------------------------------------------------------------------------

inline constexpr int kLayerNormThreads = kColumnThreads;

/// How rows of `size` elements are shared: by a warp where they are short, else by a block. Threads hold what
/// fits in 128 registers; longer rows, and those off alignment, are read again for each pass.
struct LayerNormPlan {
  static constexpr int kWarpMost = 4;  ///< vectors of a row that a thread of a warp keeps, at most
  static constexpr int block_most(std::size_t element) { return element == 2 ? 3 : 4; }

  std::int64_t size;
  int threads;      ///< of a row
  int vectors = 0;  ///< that each of them keeps; 0: none

  /// Of operands with elements of `element` bytes, which begin there.
  LayerNormPlan(std::size_t element, std::int64_t elements, std::initializer_list<Address> operands)
      : size(elements), threads(size > 1024 ? kLayerNormThreads : kWarp) {
    const int width = vector_width(element, size, operands), most = block_most(element);
    const std::int64_t all = size / width;
    if (width == 1 || all > most * kLayerNormThreads) return;
    threads = all <= kWarpMost * kWarp ? kWarp : kLayerNormThreads;
    vectors = all <= threads ? 1 : threads == kWarp ? kWarpMost : most;
  }

  /// How the parameters' gradients are summed where rows are not kept.
  ColumnCut columns(std::int64_t rows) const { return {rows, size, 1}; }
  /// Blocks that each leave a partial sum of both parameters' gradients; where rows are kept, about as many
  /// as run at once.
  std::int64_t splits(std::int64_t rows) const {
    if (vectors == 0) return columns(rows).splits;
    const std::int64_t together = kLayerNormThreads / threads;
    return std::min<std::int64_t>(256, (rows + together - 1) / together);
  }
};

// Group norm
// ---------------------------------------------------------------------------------------------------

/// How the pixels of each image are cut.
inline ColumnCut group_norm_cut(const kernels::ChannelGroups& z, int width) {
  return {z.pixels, z.channels, width, std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(z.images, 1))};
}

}  // namespace athanor::cuda
