// Eigen's own threads are off: products are divided here into blocks of rows or columns. So one thread pool
// serves the whole program, and the division depends only on sizes and thread count.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "kernels/cpu/context.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/primitive.h"
#include "kernels/scratch.h"

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

namespace {

// Copies a matrix into a dense one of the accumulation type.
template <class T, class A>
MatrixView<A> widen(const CpuContext& context, MatrixView<T> x, std::int64_t rows, std::int64_t cols, A* to) {
  const bool by_rows = x.col == 1 || x.row != 1;
  const std::int64_t outer = by_rows ? rows : cols, inner = by_rows ? cols : rows;
  const std::int64_t outer_stride = by_rows ? x.row : x.col, inner_stride = by_rows ? x.col : x.row;
  const std::int64_t grain = kGrain / std::max<std::int64_t>(1, inner) + 1;
  parallel_for(context, outer, grain, [&](std::int64_t begin, std::int64_t end) {
    vectorize_if<kFastType<T>>([&] {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* from = x.data + i * outer_stride;
        A* row = to + i * inner;
        if (inner_stride == 1) {
          for (std::int64_t j = 0; j < inner; ++j) row[j] = A(from[j]);
        } else {
          for (std::int64_t j = 0; j < inner; ++j) row[j] = A(from[j * inner_stride]);
        }
      }
    });
  });
  return by_rows ? MatrixView<A>{to, cols, 1} : MatrixView<A>{to, 1, rows};
}

// y (+)= relu(sums + bias), rounded to y's type. sums may be y itself.
template <class A, class T, class Y>
void finish(const CpuContext& context, GemmSize size, const A* sums, const T* bias, bool relu, Y* y,
            std::int64_t y_row, bool accumulate) {
  const std::int64_t grain = kGrain / std::max<std::int64_t>(1, size.n) + 1;
  dispatch_fused(relu, [&]<class Op>() {
    parallel_for(context, size.m, grain, [&](std::int64_t begin, std::int64_t end) {
      vectorize_if<kFastType<T>>([&] {
        for (std::int64_t i = begin; i < end; ++i) {
          const A* from = sums + i * size.n;
          Y* to = y + i * y_row;
          if (accumulate) {
            for (std::int64_t j = 0; j < size.n; ++j) to[j] = Y(A(to[j]) + from[j]);
          } else if (bias) {
            for (std::int64_t j = 0; j < size.n; ++j) to[j] = Y(Op::forward(from[j] + A(bias[j])));
          } else {
            for (std::int64_t j = 0; j < size.n; ++j) to[j] = Y(Op::forward(from[j]));
          }
        }
      });
    });
  });
}

// One product in the accumulation type, then bias, ReLU, rounding.
template <class T, class Y>
void product(const CpuContext& context, const PrimitiveKey& key, const T* a, const T* b, const T* bias,
             Y* y) {
  using A = Accumulate<T>;
  const auto [m, n, k, a_row, a_col, b_row, b_col, y_row, u0, u1, u2, u3, u4, u5, u6, u7] = key.sizes;
  const bool accumulate = key.fused.accumulate, relu = key.fused.activation == Activation::relu;
  constexpr bool kWide = std::is_same_v<T, A>, kDirect = std::is_same_v<Y, A>;
  const bool pack_a = !kWide || !blas_like(m, k, a_row, a_col),
             pack_b = !kWide || !blas_like(k, n, b_row, b_col);
  const std::int64_t a_size = pack_a ? m * k : 0, b_size = pack_b ? k * n : 0, y_size = kDirect ? 0 : m * n;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(a_size + b_size + y_size) * sizeof(A));
  A* const packed_a = scratch.as<A>();
  A* const packed_b = packed_a + a_size;
  A* sums = packed_b + b_size;
  if constexpr (kDirect) sums = y;
  const MatrixView<T> left{a, a_row, a_col}, right{b, b_row, b_col};
  MatrixView<A> wide_left{}, wide_right{};
  if constexpr (kWide) wide_left = left, wide_right = right;
  if (pack_a) wide_left = widen<T, A>(context, left, m, k, packed_a);
  if (pack_b) wide_right = widen<T, A>(context, right, k, n, packed_b);
  gemm_eigen<A>(context, context.threads(), {m, n, k}, wide_left, wide_right, sums, kDirect ? y_row : n,
                kDirect && accumulate);
  if (!kDirect || bias || relu)
    finish(context, {m, n, k}, sums, bias, relu, y, y_row, !kDirect && accumulate);
}

void run(const CpuContext& context, const PrimitiveKey& key, const Operands& at) {
  dispatch_floating(key.in, "matmul", [&]<class T>() {
    const auto to = [&]<class Y>(Y* y) {
      product(context, key, static_cast<const T*>(at.first), static_cast<const T*>(at.second),
              static_cast<const T*>(at.bias), y);
    };
    if (key.out == key.in) return to(static_cast<T*>(at.out));
    to(static_cast<Accumulate<T>*>(at.out));
  });
}

}  // namespace

extern const Implementation kMatmulEigen{.name = "reference",
                                         .fuses = {.accumulate = true},
                                         .activations = kOnlyRelu,
                                         .fits = [](const PrimitiveKey&) { return true; },
                                         .make = [](const PrimitiveKey& key) { return made_of(key, run); }};

}  // namespace athanor::cpu
