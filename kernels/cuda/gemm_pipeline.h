#pragma once  // Explained in docs/tensor_cores_by_hand.md.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gemm_call.h"
#include "kernels/cuda/gemm_mma.h"
#include "simt/async_copy.h"

// The product of gemm.h for half types and bytes, with its tiles copied by cp.async: from global memory to
// shared memory without registers between. Four pairs of tiles are a pipeline. While one is multiplied, three
// are on their way, so the tensor cores wait for memory only if it takes longer than three steps:
//
//   for each step: wait until its tiles are there; barrier; start to copy step + 3; multiply(tiles[step % 4])
//
// A thread that is past the barrier of a step knows two things: every thread's copies for this step have
// arrived, and all have multiplied the step before, whose tiles step + 3 overwrites. The registers that
// gemm_kernel() fetches into are free, so a warp of the large tile has 64 x 64 sums instead of 64 x 32, and
// reads shared memory a third less often per product.

namespace athanor::cuda {

inline constexpr int kPipelineStages = 4;

/// The tile that gemm_kernel() has, among threads of the pipeline: the same sums in the same order.
template <class Tile> using PipelineTile = std::conditional_t<Tile::kM == 128, GemmTile<128, 128, 128>, Tile>;

template <class T, class Tile>
inline constexpr int kPipelineBytes =
    kPipelineStages*(Tile::kM + Tile::kN) * MmaProduct<T, Tile>::kDepth* static_cast<int>(sizeof(T));

/// Grid and bits as gemm_kernel()'s. Both views can_be_copied(); kPipelineBytes of dynamic shared memory.
template <class Tile, class T, class Left, class Right, class To>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kM == 128 ? 2 : 4)
    gemm_pipeline(Gemm<T, Left, Right, To> g) {
  if constexpr (simt::kArchitecture >= 80) {
    using Product = MmaProduct<T, Tile>;
    constexpr unsigned kStages = kPipelineStages;
    constexpr int kLeft = Tile::kM * Product::kDepth, kStage = (Tile::kM + Tile::kN) * Product::kDepth;
    static_assert(Product::kStageRows * Product::kStagePitch * sizeof(float) <= kPipelineBytes<T, Tile>);
    T* const tiles = dynamic_shared<T>();

    int tile_row, tile_column;
    locate_tile(blockIdx.x, g.tiles_m, g.tiles_n, tile_row, tile_column);
    const auto batch = g.batches.offsets(g.first_batch + blockIdx.z);
    const unsigned first = g.cut(blockIdx.y), end = g.cut(blockIdx.y + 1);
    // A group of copies for each step, an empty one beyond the last.
    const auto start = [&](unsigned step) {
      if (step < end) {
        const auto [a, b, depth] = g.factors(step, batch, Product::kDepth);
        T* const to = tiles + static_cast<int>((step - first) % kStages) * kStage;
        start_tile_copy<Tile::kM, Product>(g.a, a, std::int64_t{afresh(tile_row)} * Tile::kM, depth, g.size.m,
                                           g.size.k, to);
        start_tile_copy<Tile::kN, Product>(g.b, b, std::int64_t{afresh(tile_column)} * Tile::kN, depth,
                                           g.size.n, g.size.k, to + kLeft);
      }
      simt::cp_async_commit();
    };

    Product product;
    for (unsigned ahead = 0; ahead + 1 < kStages; ++ahead) start(first + ahead);
#pragma unroll 1
    for (unsigned step = first; step < end; ++step) {
      simt::cp_async_wait<kStages - 2>();
      __syncthreads();
      start(step + kStages - 1);
      const T* const from = tiles + static_cast<int>((step - first) % kStages) * kStage;
      product.multiply(from, g.a.deep(), from + kLeft, g.b.deep());
    }
    write_tile<Tile>(g, product, reinterpret_cast<GemmSum<T>*>(tiles), tile_row, tile_column);
  }
}

}  // namespace athanor::cuda
