#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_tile.h"
#include "kernels/cuda/walk.h"
#include "kernels/elementwise_ops.h"

// What a product of matrices is: its factors, where its result goes, and what happens to a sum on its way
// there. gemm.h explains how it is computed.

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
  /// Whether `width` neighbours along a row, from a multiple of that on, are a packet on its alignment.
  bool in_packets(int width) const { return column == 1 && row % width == 0; }
  __device__ __forceinline__ std::int64_t at(std::int64_t m, std::int64_t n) const {
    return m * row + n * column;
  }
};

/// Of a value that is rounded to T.
template <class T> __device__ __forceinline__ Accumulate<T> activate(Activation activation, Accumulate<T> x) {
  switch (activation) {
    case Activation::none: return x;
#define ATH_CASE(Op, name) \
  case Activation::name: return OpFor<kernels::Op, T>::forward(x);
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  return x;
}

/// How a sum becomes an element of y: activation(alpha sum + bias[channel]), or alpha sum + beta c where
/// there is a c; rounded once.
template <class T> struct Finish {
  using A = Accumulate<T>;
  void* y;        // of T, or of A
  bool wide;      // of A
  const T* bias;  // or null
  Activation activation = Activation::none;
  const void* c = nullptr;  // laid out like y, or y itself, which is then added to; or null
  A alpha = 1, beta = 1;

  __device__ __forceinline__ void operator()(std::int64_t at, std::int64_t channel, A sum) const {
    if (bias) {
      sum = std::fma(alpha, sum, A(bias[channel]));
    } else {
      sum *= alpha;
    }
    if (wide) {
      write<A>(at, sum);
    } else {
      write<T>(at, sum);
    }
  }

  /// Whether packet() may be called, for neighbours that lie on their alignment relative to y.
  bool in_packets() const {
    return !wide && aligned<kVec<T>>(static_cast<const T*>(y)) && aligned<kVec<T>>(static_cast<const T*>(c));
  }
  /// W neighbours along the channels, by one access; y is of T.
  template <int W>
  __device__ __forceinline__ void packet(std::int64_t at, std::int64_t channel, const A (&sums)[W]) const {
    Vec<T, W> out;
    if (c) {
      out = load<W>(static_cast<const T*>(c) + at);
#pragma unroll
      for (int v = 0; v < W; ++v) out[v] = T(std::fma(beta, A(out[v]), alpha * sums[v]));
    } else {
#pragma unroll
      for (int v = 0; v < W; ++v)
        out[v] = T(
            activate<T>(activation, bias ? std::fma(alpha, sums[v], A(bias[channel + v])) : alpha * sums[v]));
    }
    store(static_cast<T*>(y) + at, out);
  }

 private:
  template <class Y> __device__ __forceinline__ void write(std::int64_t at, A sum) const {
    static_cast<Y*>(y)[at] =
        Y(c ? std::fma(beta, A(static_cast<const Y*>(c)[at]), sum) : activate<Y>(activation, sum));
  }
};

/// One call: what to multiply, then how the work is divided, which gemm() sets (gemm_plan.h).
template <class T, class Left, class Right, class To> struct Gemm {
  Left a;   ///< m rows, k deep
  Right b;  ///< n rows, k deep
  To to;
  GemmShape size;
  Walk<3> batches;  ///< element offsets of a, b and y
  Walk<2> summed;   ///< and of a and b whose products are added up
  Finish<T> finish;
  bool channels_are_rows = false;   ///< of the product: where the bias lies
  std::int64_t batch_channels = 0;  ///< how far the bias of the next batch is
  std::int64_t channels = 1;        ///< y's last axis, which has the bias, where it is cut

  bool packets = false;  ///< whether finish.packet() may write
  unsigned tiles_m = 1, tiles_n = 1;
  unsigned steps = 1;  ///< of one product; those of all that are summed are below 2^31
  std::int64_t first_batch = 0;
  GemmSum<T>* partials = nullptr;  ///< [gridDim.y, y's size], or null
  std::int64_t partial_size = 0;

  /// The first step of a piece of the depth.
  __device__ __forceinline__ unsigned cut(unsigned piece) const {
    return static_cast<unsigned>(steps * summed.numel * piece / gridDim.y);
  }

  /// The factors of a step, and the depth at which it begins.
  struct Factors {
    const T *a, *b;
    std::int64_t depth;
  };
  template <class Offsets>
  __device__ __forceinline__ Factors factors(unsigned step, const Offsets& batch, int step_depth) const {
    Factors from{a.data + batch[0], b.data + batch[1], 0};
    if (summed.numel != 1) {
      const unsigned product = step / steps;
      const auto offset = summed.offsets(product);
      from.a += offset[0], from.b += offset[1];
      step -= product * steps;
    }
    from.depth = std::int64_t{step} * step_depth;
    return from;
  }
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

/// A group of rows that write_tile() has staged, kVec<T> neighbours at a time.
template <class Tile, class Product, class T, class Left, class Right, class To>
__device__ __forceinline__ void write_packets(const Gemm<T, Left, Right, To>& g, const GemmSum<T>* stage,
                                              int tile_row, int tile_column, int group) {
  constexpr int kWidth = kVec<T>, kPackets = Tile::kN / kWidth;
  const std::int64_t batch_index = g.first_batch + blockIdx.z, first = g.batches.offsets(batch_index)[2];
  for (int i = static_cast<int>(threadIdx.x); i < Product::kStageRows * kPackets; i += Tile::kThreads) {
    const int row = i / kPackets, column = i % kPackets * kWidth;
    const std::int64_t m = std::int64_t{tile_row} * Tile::kM + group * Product::kStageRows + row,
                       n = std::int64_t{tile_column} * Tile::kN + column;
    if (m >= g.size.m || n >= g.size.n) continue;
    GemmSum<T> sums[kWidth];
#pragma unroll
    for (int v = 0; v < kWidth; v += 4) {
      const auto part = load<4>(stage + row * Product::kStagePitch + column + v);
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[v + e] = part[e];
    }
    g.finish.template packet<kWidth>(first + g.to.at(m, n), batch_index * g.batch_channels + n, sums);
  }
}

/// The last step of a block: a tile goes out by way of shared memory, so that neighbouring threads
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
    if constexpr (sizeof(T) <= 2) {
      if (g.packets) {
        write_packets<Tile, Product>(g, stage, tile_row, tile_column, group);
        continue;
      }
    }
    for (int e = static_cast<int>(threadIdx.x); e < Product::kStageRows * Tile::kN; e += Tile::kThreads) {
      const int row = by_columns ? e % Product::kStageRows : e / Tile::kN;
      const int column = by_columns ? e / Product::kStageRows : e % Tile::kN;
      const std::int64_t m = std::int64_t{tile_row} * Tile::kM + group * Product::kStageRows + row,
                         n = std::int64_t{tile_column} * Tile::kN + column;
      if (m >= g.size.m || n >= g.size.n) continue;
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

}  // namespace athanor::cuda
