#pragma once

#include "kernels/account/detail/cost.h"
#include "kernels/account/flops.h"
#include "kernels/cuda/grid_partition.h"

namespace athanor::account {

/// A product of our own (kernels/cuda/gemm.h): y [m, n] from factors m x k and k x n.
struct Product {
  const char* kernel;
  std::int64_t read;           ///< bytes of both factors
  std::int64_t once_read = 0;  ///< of the bias, and of y if it is added to
  std::int64_t written;        ///< of y
  std::int64_t m, n, k;
  std::int64_t batches = 1, summed = 1;
  std::int64_t results = 0;  ///< elements of y
  bool splits = false;       ///< the depth may be cut into pieces
  DType dtype = DType::f32;
};

/// The part of y that a block has.
struct ProductTile {
  std::int64_t rows, columns, threads;
};
inline ProductTile tile_of(const Product& z) {
  const bool narrow = z.n <= 16;
  const std::int64_t large_tiles = pieces(z.m, 128) * pieces(z.n, 128) * z.batches;
  if (!narrow && z.dtype != DType::f64 && z.m > 64 && z.n > 64 && large_tiles >= cuda::kMultiprocessors)
    return {128, 128, 256};
  return {64, narrow ? 16 : 64, narrow ? 32 : 128};
}

/// Tiles are fetched more than once, mostly from the cache: factors count once. Where the depth is cut, the
/// pieces go through memory and a second kernel adds them up.
inline void add_product(AccountContext& context, const Product& z) {
  const auto [rows, columns, threads] = tile_of(z);
  const std::int64_t depth = size(z.dtype) == 2                       ? 32
                             : rows * columns * size(z.dtype) > 32768 ? 8
                                                                      : 16,
                     steps = pieces(z.k, depth) * z.summed,
                     tiles = pieces(z.m, rows) * pieces(z.n, columns) * z.batches,
                     sum = z.dtype == DType::f64 ? 8 : 4;
  const std::int64_t cut = z.splits ? cuda::split_pieces(tiles, threads, steps, z.results, sum) : 1;
  const std::int64_t flops = product_flops(z.m * z.n * z.batches * z.summed, z.k),
                     partial = cut * z.results * sum;
  KernelCost cost{.kernel = z.kernel,
                  .bytes_read = z.read + (cut == 1 ? z.once_read : 0),
                  .bytes_written = cut == 1 ? z.written : partial,
                  .flops = flops,
                  .dtype = z.dtype};
  context.add(cost);
  if (cut > 1) launch(context, z.kernel, partial + z.once_read, z.written);
}

}  // namespace athanor::account
