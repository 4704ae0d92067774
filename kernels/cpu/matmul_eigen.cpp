// Eigen's own threads are off: products are divided here into blocks of rows or columns. So one thread pool
// serves the whole program, and the division depends only on sizes and thread count.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"

namespace athanor::cpu {
namespace {

using Eigen::Dynamic;
using Eigen::OuterStride;
template <class T, int Order>
using Mapped = Eigen::Map<const Eigen::Matrix<T, Dynamic, Dynamic, Order>, Eigen::Unaligned, OuterStride<>>;
template <class T>
using Target =
    Eigen::Map<Eigen::Matrix<T, Dynamic, Dynamic, Eigen::RowMajor>, Eigen::Unaligned, OuterStride<>>;

template <class T, class F> void with_map(MatrixView<T> x, std::int64_t rows, std::int64_t cols, const F& f) {
  if (x.col == 1) {
    f(Mapped<T, Eigen::RowMajor>(x.data, rows, cols, OuterStride<>(x.row)));
  } else {
    f(Mapped<T, Eigen::ColMajor>(x.data, rows, cols, OuterStride<>(x.col)));
  }
}

template <class T>
void multiply(GemmSize size, MatrixView<T> a, MatrixView<T> b, T* y, std::int64_t y_row, bool accumulate) {
  Target<T> target(y, size.m, size.n, OuterStride<>(y_row));
  with_map(a, size.m, size.k, [&](const auto& left) {
    with_map(b, size.k, size.n, [&](const auto& right) {
      if (accumulate) {
        target.noalias() += left * right;
      } else {
        target.noalias() = left * right;
      }
    });
  });
}

}  // namespace

template <class T>
void gemm_eigen(const CpuContext& context, int threads, GemmSize size, MatrixView<T> a, MatrixView<T> b, T* y,
                std::int64_t y_row, bool accumulate) {
  constexpr std::int64_t kBlock = 16;  // rows or columns: a multiple of Eigen's register tile
  const bool by_rows = size.m >= size.n;
  const std::int64_t blocks = ((by_rows ? size.m : size.n) + kBlock - 1) / kBlock;
  const std::int64_t work = size.m * size.n * size.k / std::max<std::int64_t>(1, blocks);
  // One piece for each thread: Eigen packs the other factor for each.
  const std::int64_t share = (blocks + threads - 1) / threads;
  const std::int64_t grain = std::max(share, kGrain / std::max<std::int64_t>(1, work) + 1);
  parallel_for(context, blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    begin *= kBlock;
    end = std::min(end * kBlock, by_rows ? size.m : size.n);
    GemmSize part = size;
    MatrixView<T> left = a, right = b;
    T* out = y;
    if (by_rows) {
      part.m = end - begin;
      left.data += begin * a.row;
      out += begin * y_row;
    } else {
      part.n = end - begin;
      right.data += begin * b.col;
      out += begin;
    }
    multiply(part, left, right, out, y_row, accumulate);
  });
}

template void gemm_eigen(const CpuContext&, int, GemmSize, MatrixView<float>, MatrixView<float>, float*,
                         std::int64_t, bool);
template void gemm_eigen(const CpuContext&, int, GemmSize, MatrixView<double>, MatrixView<double>, double*,
                         std::int64_t, bool);

}  // namespace athanor::cpu
