#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "kernels/activation.h"
#include "kernels/cuda/gemm_fma.h"
#include "kernels/cuda/gemm_mma.h"
#include "kernels/cuda/grid_partition.h"
#include "kernels/cuda/walk.h"
#include "kernels/elementwise_ops.h"

// A product of matrices on a GPU, for matmul and for convolutions, which are products whose factors are
// gathered on the way (implicit GEMM: im2col without writing it anywhere).
//
// y = a b takes 2 M N K FLOPs on M K + K N + M N numbers: the work is to fetch each number rarely. A block
// owns a tile of y, 128 x 128, 64 x 64 or 64 x 16, and walks along the depth K in steps of 32 for half types,
// else of 16, or 8 in the large tile: it brings a tile of a and one of b into shared memory, so that a number
// fetched from global memory serves up to 128 multiply-adds. From there a thread reads 8 + 8 numbers (8 + 4)
// into registers for 64 (32) multiply-adds. There are two pairs of tiles: while one is multiplied, the next
// step's numbers are on their way into registers, and from there they go to the other pair. That takes one
// barrier a step:
//
//   for each step: fetch(step); multiply(tiles[(step - 1) % 2]); registers -> tiles[step % 2]; barrier
//
// Whoever is past the barrier of a step knows that all have multiplied the step before, so those tiles are
// free.
//
// Where y has too few tiles to fill the GPU (weight gradients: small y, very deep), the depth is cut into
// pieces, too: each writes its sums to a buffer of its own, and a second kernel adds them up in their order.
// How many pieces there are depends on the sizes alone, not on the GPU, and neither do the bits. Sums are
// kept in f32 (f64 for f64) and rounded once, after bias and activation.
//
// What differs between matmul and the passes of a convolution is where numbers come from (the views: Left and
// Right, see TileCopy) and where they go (To). How a block multiplies its tiles is a policy: FmaProduct for
// f32 and f64, MmaProduct (tensor cores) for half types.

namespace athanor::cuda {

/// A matrix in memory, as a factor: element (row, depth) lies at data[row * row_stride + depth *
/// depth_stride].
template <class T> struct MatrixView {
  using Element = T;
  using Origin = const T*;
  using Along = std::int64_t;
  using Across = std::int64_t;
  const T* data;
  std::int64_t along_stride, across_stride;
  bool is_deep, whole;

  /// `moves`: by how much the matrix will be moved along the axes of a batch. They must keep its packets on
  /// their alignment, if those are to be read whole.
  MatrixView(const T* from, std::int64_t rows, std::int64_t depths, std::int64_t row_stride,
             std::int64_t depth_stride, const Strides& moves)
      : data(from), is_deep(depth_stride == 1 || row_stride != 1) {
    constexpr int kWidth = kVec<T>;
    along_stride = is_deep ? depth_stride : row_stride;
    across_stride = is_deep ? row_stride : depth_stride;
    whole = along_stride == 1 && across_stride % kWidth == 0 && (is_deep ? depths : rows) % kWidth == 0 &&
            aligned<kWidth>(from);
    for (const std::int64_t move : moves) whole = whole && move % kWidth == 0;
  }

  __device__ __forceinline__ bool deep() const { return is_deep; }
  __device__ __forceinline__ Origin origin(const T* base, std::int64_t along, std::int64_t across) const {
    return base + along * along_stride + across * across_stride;
  }
  __device__ __forceinline__ Along along(Origin, int i) const { return i * along_stride; }
  __device__ __forceinline__ Across across(Origin, int i) const { return i * across_stride; }
  __device__ __forceinline__ FactorAddress<T> at(Origin origin, Along along, Across across) const {
    return {origin + along + across, true};
  }
};

/// A dense or strided matrix as the result: element (m, n) goes to m * row + n * column.
struct MatrixTo {
  std::int64_t row, column;

  __host__ __device__ bool by_columns() const { return column != 1; }
  __device__ __forceinline__ std::int64_t at(std::int64_t m, std::int64_t n) const {
    return m * row + n * column;
  }
};

template <class A> __device__ __forceinline__ A activate(Activation activation, A x) {
  switch (activation) {
    case Activation::none: return x;
#define ATH_CASE(Op, name) \
  case Activation::name: return kernels::Op::forward(x);
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  return x;
}

/// How a sum becomes an element of y: y (+)= activation(sum + bias[channel]), rounded once.
template <class T> struct Finish {
  using A = Accumulate<T>;
  void* y;        // of T, or of A
  bool wide;      // of A
  const T* bias;  // or null
  Activation activation = Activation::none;
  bool accumulate = false;

  __device__ __forceinline__ void operator()(std::int64_t at, std::int64_t channel, A sum) const {
    if (bias) sum += A(bias[channel]);
    if (wide) {
      write(static_cast<A*>(y) + at, sum);
    } else {
      write(static_cast<T*>(y) + at, sum);
    }
  }

  /// W neighbours along the channels, by one access; y is of T and overwritten.
  template <int W>
  __device__ __forceinline__ void packet(std::int64_t at, std::int64_t channel, const A (&sums)[W]) const {
    Vec<T, W> out;
#pragma unroll
    for (int v = 0; v < W; ++v)
      out[v] = T(activate(activation, bias ? sums[v] + A(bias[channel + v]) : sums[v]));
    store(static_cast<T*>(y) + at, out);
  }

 private:
  template <class Y> __device__ __forceinline__ void write(Y* to, A sum) const {
    *to = accumulate ? Y(A(*to) + sum) : Y(activate(activation, sum));
  }
};

/// One call: what to multiply, then how the work is cut, which gemm() decides.
template <class T, class Left, class Right, class To> struct Gemm {
  Left a;   ///< m rows, k deep
  Right b;  ///< n rows, k deep
  To to;
  std::int64_t m, n, k;
  Walk<3> batches;  ///< element offsets of a, b and y
  Walk<2> summed;   ///< and of a and b whose products are added up
  Finish<T> finish;
  bool channels_are_rows = false;   ///< of the product: where the bias lies
  std::int64_t batch_channels = 0;  ///< how far the bias of the next batch is

  unsigned tiles_m = 1, tiles_n = 1;
  unsigned steps = 1;  ///< of one product; those of all that are summed are below 2^31
  std::int64_t first_batch = 0;
  Accumulate<T>* partials = nullptr;  ///< [gridDim.y, y's size], or null
  std::int64_t partial_size = 0;
};

/// Tiles are numbered down strips 8 tiles high, so that blocks that run together share rows and columns.
__device__ __forceinline__ void locate_tile(unsigned tile, unsigned tiles_m, unsigned tiles_n, int& row,
                                            int& column) {
  constexpr unsigned kStrip = 8;
  const unsigned strip = tile / (kStrip * tiles_n), inside = tile % (kStrip * tiles_n);
  const unsigned rest = tiles_m - strip * kStrip, height = rest < kStrip ? rest : kStrip;
  row = static_cast<int>(strip * kStrip + inside % height);
  column = static_cast<int>(inside / height);
}

template <class T, class Tile>
using GemmProduct = std::conditional_t<sizeof(T) == 2, MmaProduct<T, Tile>, FmaProduct<T, Tile>>;

/// Blocks that share a multiprocessor, by their registers: what a thread of that many may use holds its sums
/// and what it fetches ahead.
template <class T, class Tile>
inline constexpr int kBlocks = sizeof(T) == 8         ? 1
                               : Tile::kThreads == 32 ? 12
                                                      : 512 / Tile::kThreads;

/// The last step of gemm_kernel(): a tile goes out by way of shared memory, so that neighbouring threads
/// write neighbours whatever part of it they computed.
template <class Tile, class T, class Left, class Right, class To, class Product, class A>
__device__ __forceinline__ void write_tile(const Gemm<T, Left, Right, To>& g, Product& product, A* stage,
                                           int tile_row, int tile_column) {
  const bool by_columns = g.to.by_columns();
  const std::int64_t batch_index = g.first_batch + blockIdx.z, first = g.batches.offsets(batch_index)[2];
#pragma unroll 1
  for (int group = 0; group < Product::kGroups; ++group) {
    __syncthreads();
    product.stage(group, stage);
    __syncthreads();
    for (int e = static_cast<int>(threadIdx.x); e < Product::kStageRows * Tile::kN; e += Tile::kThreads) {
      const int row = by_columns ? e % Product::kStageRows : e / Tile::kN;
      const int column = by_columns ? e / Product::kStageRows : e % Tile::kN;
      const std::int64_t m = std::int64_t{tile_row} * Tile::kM + group * Product::kStageRows + row,
                         n = std::int64_t{tile_column} * Tile::kN + column;
      if (m >= g.m || n >= g.n) continue;
      const std::int64_t at = first + g.to.at(m, n);
      const A sum = stage[row * Product::kStagePitch + column];
      if (g.partials) {
        g.partials[blockIdx.y * g.partial_size + at] = sum;
      } else {
        g.finish(at, batch_index * g.batch_channels + (g.channels_are_rows ? m : n), sum);
      }
    }
  }
}

/// Grid: tiles of y, pieces of the depth, batches.
template <class Tile, class T, class Left, class Right, class To>
__global__ void __launch_bounds__(Tile::kThreads, kBlocks<T, Tile>) gemm_kernel(Gemm<T, Left, Right, To> g) {
  using A = Accumulate<T>;
  using Product = GemmProduct<T, Tile>;
  using Stored = typename Product::Stored;
  constexpr int kLeft = Tile::kM * Product::kDepth, kStep = (Tile::kM + Tile::kN) * Product::kDepth;
  constexpr int kTileBytes = 2 * kStep * static_cast<int>(sizeof(Stored)),
                kStageBytes = Product::kStageRows * Product::kStagePitch * static_cast<int>(sizeof(A));
  __shared__ __align__(16) unsigned char shared[kTileBytes > kStageBytes ? kTileBytes : kStageBytes];

  int tile_row, tile_column;
  locate_tile(blockIdx.x, g.tiles_m, g.tiles_n, tile_row, tile_column);
  const auto batch = g.batches.offsets(g.first_batch + blockIdx.z);
  const auto cut = [&](unsigned piece) {
    return static_cast<unsigned>(g.steps * g.summed.numel * piece / gridDim.y);
  };
  const unsigned end = cut(blockIdx.y + 1);

  TileCopy<Left, Tile::kM, Product> left;
  TileCopy<Right, Tile::kN, Product> right;
  const auto fetch = [&](unsigned step) {
    const T *a = g.a.data + batch[0], *b = g.b.data + batch[1];
    if (g.summed.numel != 1) {
      const unsigned product = step / g.steps;
      const auto offset = g.summed.offsets(product);
      a += offset[0], b += offset[1];
      step -= product * g.steps;
    }
    const std::int64_t depth = std::int64_t{step} * Product::kDepth;
    left.fetch(g.a, a, std::int64_t{afresh(tile_row)} * Tile::kM, depth, g.m, g.k);
    right.fetch(g.b, b, std::int64_t{afresh(tile_column)} * Tile::kN, depth, g.n, g.k);
  };

  // One copy of each part: the first round only fetches, the last one only multiplies.
  Product product;
  Stored* const tiles = reinterpret_cast<Stored*>(shared);
  int next = 0, full = -1;  // where in it the next step's tiles begin, and where the last one's
  for (unsigned step = cut(blockIdx.y);; ++step) {
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
    gemm_finish(const Accumulate<T>* partials, unsigned pieces, std::int64_t size, Finish<T> finish,
                std::int64_t channels) {
  for (std::int64_t at = std::int64_t{blockIdx.x} * 256 + threadIdx.x; at < size;
       at += std::int64_t{gridDim.x} * 256) {
    Accumulate<T> sum = 0;
    for (unsigned piece = 0; piece < pieces; ++piece) sum += partials[piece * size + at];
    finish(at, finish.bias ? at % channels : 0, sum);
  }
}

/// The depth of a product is divided among blocks only where y is one dense run of elements, all of them
/// written.
struct SplitK {
  std::int64_t y_size;
  std::int64_t channels;  ///< y's last axis, which has the bias
};

namespace detail {

template <class Tile, class T, class Left, class Right, class To>
void launch_gemm(const CudaContext& context, const char* name, Gemm<T, Left, Right, To> g,
                 const std::optional<SplitK>& split) {
  constexpr int kDepth = GemmProduct<T, Tile>::kDepth;
  g.tiles_m = static_cast<unsigned>((g.m + Tile::kM - 1) / Tile::kM);
  g.tiles_n = static_cast<unsigned>((g.n + Tile::kN - 1) / Tile::kN);
  const std::int64_t steps = (g.k + kDepth - 1) / kDepth;
  ATH_CHECK(steps * g.summed.numel < std::int64_t{1} << 31,
            "{}: a sum must have less than 2^31 x {} terms, but has {} of {}", name, kDepth, g.summed.numel,
            g.k);
  g.steps = static_cast<unsigned>(steps);
  const std::int64_t pieces =
      split ? split_pieces(std::int64_t{g.tiles_m} * g.tiles_n * g.batches.numel, Tile::kThreads,
                           steps * g.summed.numel, split->y_size, sizeof(Accumulate<T>))
            : 1;
  const auto run = [&] {
    constexpr std::int64_t kMaxBatches = 65535;
    for (g.first_batch = 0; g.first_batch < g.batches.numel; g.first_batch += kMaxBatches) {
      const std::int64_t batches = std::min(kMaxBatches, g.batches.numel - g.first_batch);
      const dim3 grid(g.tiles_m * g.tiles_n, static_cast<unsigned>(pieces), static_cast<unsigned>(batches));
      launch(context, {name, grid, Tile::kThreads}, gemm_kernel<Tile, T, Left, Right, To>, g);
    }
  };
  if (pieces == 1) return run();
  const Scratch scratch =
      context.scratch(static_cast<std::size_t>(pieces * split->y_size) * sizeof(Accumulate<T>));
  g.partials = scratch.as<Accumulate<T>>();
  g.partial_size = split->y_size;
  run();
  launch(context, {name, blocks_for(context, split->y_size, 256), 256}, gemm_finish<T>, g.partials,
         static_cast<unsigned>(pieces), split->y_size, g.finish, split->channels);
}

}  // namespace detail

/// Queues the product. m, n and the batch must not be 0; k and the summed batch may be.
template <class T, class Left, class Right, class To>
void gemm(const CudaContext& context, const char* name, const Gemm<T, Left, Right, To>& g,
          const std::optional<SplitK>& split) {
  if (g.n <= 16) return detail::launch_gemm<GemmTile<64, 16, 32>>(context, name, g, split);
  if constexpr (!std::is_same_v<T, double>) {
    // The large tile moves half the bytes of the other, once there are enough of it.
    const std::int64_t tiles = (g.m + 127) / 128 * ((g.n + 127) / 128) * g.batches.numel;
    if (g.m > 64 && g.n > 64 && tiles >= kMultiprocessors)
      return detail::launch_gemm<GemmTile<128, 128, 64>>(context, name, g, split);
  }
  detail::launch_gemm<GemmTile<64, 64, 32>>(context, name, g, split);
}

}  // namespace athanor::cuda
