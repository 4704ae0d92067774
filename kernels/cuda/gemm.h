#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/context.h"
#include "kernels/cuda/gemm_call.h"
#include "kernels/cuda/gemm_fma.h"
#include "kernels/cuda/gemm_mma.h"
#include "kernels/cuda/gemm_pipeline.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_sums.h"
#include "kernels/scratch.h"

// A product of matrices on a GPU, for matmul and for convolutions, which are products whose factors are
// gathered on the way (implicit GEMM: im2col without writing it anywhere).
//
// y = a b takes 2 M N K FLOPs on M K + K N + M N numbers: the work is to fetch each number rarely. A block
// owns a tile of y, 128 x 128, 64 x 64 or 64 x 16, and walks along the depth K in steps of 32 for half types
// (64 for bytes), else of 16, or 8 in the large tile: it brings a tile of a and one of b into shared memory,
// so that a number fetched from global memory serves up to 128 multiply-adds. From there a thread reads 8 + 8
// numbers (8 + 4) into registers for 64 (32) multiply-adds. There are two pairs of tiles: while one is
// multiplied, the next step's numbers are on their way into registers, and from there they go to the other
// pair. That takes one barrier a step:
//
//   for each step: fetch(step); multiply(tiles[(step - 1) % 2]); registers -> tiles[step % 2]; barrier
//
// Whoever is past the barrier of a step knows that all have multiplied the step before, so those tiles are
// free.
//
// Where y has too few tiles to fill the GPU (weight gradients: small y, very deep), the depth is cut into
// pieces, too: each writes its sums to a buffer of its own, and a second kernel adds them up in their order.
// How many pieces there are depends on the sizes alone (gemm_plan.h), not on the GPU, and neither do the
// bits. Sums are kept in f32 (f64 for f64) and rounded once, after bias and activation.
//
// On sm_80 and later, half types and bytes whose packets can be read whole go through a deeper pipeline:
// gemm_pipeline.h.
//
// What differs between matmul and the passes of a convolution is where numbers come from (the views: Left and
// Right, see TilePackets) and where they go (To). How a block multiplies its tiles is a policy: FmaProduct
// for f32 and f64, MmaProduct (tensor cores) for half types and for bytes, which are u8 by i8 with exact
// sums.

namespace athanor::cuda {

template <class T, class Tile>
using GemmProduct = std::conditional_t<sizeof(T) <= 2, MmaProduct<T, Tile>, FmaProduct<T, Tile>>;

/// Blocks that share a multiprocessor, by their registers: what a thread of that many may use holds its sums
/// and what it fetches ahead.
template <class T, class Tile>
inline constexpr int kBlocks = sizeof(T) == 8         ? 1
                               : Tile::kThreads == 32 ? 12
                                                      : 512 / Tile::kThreads;

/// Grid: tiles of y, pieces of the depth, batches.
template <class Tile, class T, class Left, class Right, class To>
__global__ void __launch_bounds__(Tile::kThreads, kBlocks<T, Tile>) gemm_kernel(Gemm<T, Left, Right, To> g) {
  using A = GemmSum<T>;
  using Product = GemmProduct<T, Tile>;
  using Stored = typename Product::Stored;
  constexpr int kLeft = Tile::kM * Product::kDepth, kStep = (Tile::kM + Tile::kN) * Product::kDepth;
  constexpr int kTileBytes = 2 * kStep * static_cast<int>(sizeof(Stored)),
                kStageBytes = Product::kStageRows * Product::kStagePitch * static_cast<int>(sizeof(A));
  __shared__ __align__(16) unsigned char shared[kTileBytes > kStageBytes ? kTileBytes : kStageBytes];

  int tile_row, tile_column;
  locate_tile(blockIdx.x, g.tiles_m, g.tiles_n, tile_row, tile_column);
  const auto batch = g.batches.offsets(g.first_batch + blockIdx.z);
  const unsigned end = g.cut(blockIdx.y + 1);

  TileCopy<Left, Tile::kM, Product> left;
  TileCopy<Right, Tile::kN, Product> right;
  const auto fetch = [&](unsigned step) {
    const auto [a, b, depth] = g.factors(step, batch, Product::kDepth);
    left.fetch(g.a, a, std::int64_t{afresh(tile_row)} * Tile::kM, depth, g.size.m, g.size.k);
    right.fetch(g.b, b, std::int64_t{afresh(tile_column)} * Tile::kN, depth, g.size.n, g.size.k);
  };

  // One copy of each part: the first round only fetches, the last one only multiplies.
  Product product;
  Stored* const tiles = reinterpret_cast<Stored*>(shared);
  int next = 0, full = -1;  // where in it the next step's tiles begin, and where the last one's
  for (unsigned step = g.cut(blockIdx.y);; ++step) {
    const bool more = step < end;
    if (more) fetch(step);
    if (full >= 0) product.multiply(tiles + full, g.a.deep(), tiles + full + kLeft, g.b.deep());
    if (!more) break;
    left.store(g.a, tiles + next);
    right.store(g.b, tiles + next + kLeft);
    __syncthreads();
    full = next, next = kStep - next;
  }

  write_tile<Tile>(g, product, reinterpret_cast<A*>(shared), tile_row, tile_column);
}

/// y from the sums of its pieces, in their order: (pieces + 1) numbers moved an element.
template <class T>
__global__ void __launch_bounds__(256)
    gemm_finish(const GemmSum<T>* partials, unsigned pieces, std::int64_t size, Finish<T> finish,
                std::int64_t channels) {
  for (std::int64_t at = std::int64_t{blockIdx.x} * 256 + threadIdx.x; at < size;
       at += std::int64_t{gridDim.x} * 256) {
    GemmSum<T> sum = 0;
    for (unsigned piece = 0; piece < pieces; ++piece) sum += partials[piece * size + at];
    finish(at, finish.bias ? at % channels : 0, sum);
  }
}

namespace detail {

template <class Tile, class T, class Left, class Right, class To>
void launch_tiles(const CudaContext& context, const char* name, const dim3& grid,
                  const Gemm<T, Left, Right, To>& g) {
  if constexpr (sizeof(T) <= 2 && Tile::kN >= 64) {
    using Pipeline = PipelineTile<Tile>;
    if (context.sm() >= 80 && can_be_copied(g.a) && can_be_copied(g.b))
      return launch(context, {name, grid, Pipeline::kThreads, kPipelineBytes<T, Pipeline>},
                    gemm_pipeline<Pipeline, T, Left, Right, To>, g);
  }
  launch(context, {name, grid, Tile::kThreads}, gemm_kernel<Tile, T, Left, Right, To>, g);
}

/// A product whose depth may be cut.
template <class Tile, class T, class Left, class Right, class To>
void launch_pieces(const CudaContext& context, const char* name, Gemm<T, Left, Right, To>& g,
                   const GemmPlan& plan) {
  const auto run = [&] {
    constexpr std::int64_t kMaxBatches = 65535;
    for (g.first_batch = 0; g.first_batch < g.batches.numel; g.first_batch += kMaxBatches) {
      const std::int64_t batches = std::min(kMaxBatches, g.batches.numel - g.first_batch);
      launch_tiles<Tile>(
          context, name,
          dim3(g.tiles_m * g.tiles_n, static_cast<unsigned>(plan.pieces), static_cast<unsigned>(batches)), g);
    }
  };
  if (plan.pieces == 1) {
    g.packets =
        sizeof(T) <= 2 && g.size.n % kVec<T> == 0 && g.to.in_packets(kVec<T>) && g.finish.in_packets();
    return run();
  }
  const Scratch scratch = context.scratch(static_cast<std::size_t>(plan.partial_bytes));
  g.partials = scratch.as<GemmSum<T>>();
  g.partial_size = g.size.cuttable;
  run();
  launch(context, {name, blocks_for(context, g.size.cuttable, 256), 256}, gemm_finish<T>, g.partials,
         static_cast<unsigned>(plan.pieces), g.size.cuttable, g.finish, g.channels);
}

/// A product whose columns are summed.
template <class Tile, class T, class Left, class Right>
void launch_pieces(const CudaContext& context, const char* name, Gemm<T, Left, Right, SummedMatrixTo>& g,
                   const GemmPlan&) {
  const Scratch rows = context.scratch(static_cast<std::size_t>(2 * g.tiles_m * g.size.n) * sizeof(float));
  g.to.partials = rows.as<float>();
  launch_tiles<Tile>(context, name, dim3(g.tiles_m * g.tiles_n), g);
  launch(context, total_launch("conv2d_sums", g.tiles_m, g.size.n), finish_column_sums<float>, g.to.partials,
         g.tiles_m, g.size.n, g.to.sums);
}

}  // namespace detail

/// Queues the product. m, n and the batch must not be 0; k and the summed batch may be.
template <class T, class Left, class Right, class To>
void gemm(const CudaContext& context, const char* name, Gemm<T, Left, Right, To> g) {
  const GemmPlan plan(g.size, sizeof(T));
  ATH_CHECK(plan.steps * g.size.summed < std::int64_t{1} << 31,
            "{}: a sum must have less than 2^31 x {} terms, but has {} of {}", name, plan.depth,
            g.size.summed, g.size.k);
  g.tiles_m = static_cast<unsigned>(plan.tiles_m);
  g.tiles_n = static_cast<unsigned>(plan.tiles_n);
  g.steps = static_cast<unsigned>(plan.steps);
  if (plan.tile == kNarrowTile) return detail::launch_pieces<GemmTile<64, 16, 32>>(context, name, g, plan);
  if constexpr (!std::is_same_v<T, double>) {
    if (plan.tile == kLargeTile) return detail::launch_pieces<GemmTile<128, 128, 64>>(context, name, g, plan);
  }
  detail::launch_pieces<GemmTile<64, 64, 32>>(context, name, g, plan);
}

}  // namespace athanor::cuda
