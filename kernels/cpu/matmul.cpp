#include "kernels/matmul.h"

#include <array>

#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/detail/matmul_plan.h"
#include "kernels/packed_weights.h"

namespace athanor::kernels {
namespace {

using cpu::MatrixView;

struct Offsets {
  std::int64_t a = 0, b = 0, y = 0;
};

Offsets offsets_of(const std::array<Batches::Axis, kMaxRank>& axes, int rank, std::int64_t index) {
  Offsets at;
  for (int i = rank - 1; i >= 0; --i) {
    const std::int64_t step = index % axes[i].size;
    index /= axes[i].size;
    at.a += step * axes[i].a;
    at.b += step * axes[i].b;
    at.y += step * axes[i].y;
  }
  return at;
}

// Whether a matrix of these strides has contiguous, non-overlapping rows or columns.
bool blas_like(std::int64_t rows, std::int64_t cols, std::int64_t row, std::int64_t col) {
  return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

// Eigen ----------------------------------------------------------------------------------------------------

// Copies a matrix into a dense one of the accumulation type.
template <class T, class A>
MatrixView<A> widen(CpuContext& context, MatrixView<T> x, std::int64_t rows, std::int64_t cols, A* to) {
  const bool by_rows = x.col == 1 || x.row != 1;
  const std::int64_t outer = by_rows ? rows : cols, inner = by_rows ? cols : rows;
  const std::int64_t outer_stride = by_rows ? x.row : x.col, inner_stride = by_rows ? x.col : x.row;
  const std::int64_t grain = cpu::kGrain / std::max<std::int64_t>(1, inner) + 1;
  cpu::parallel_for(context, outer, grain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorize_if<cpu::kFastType<T>>([&] {
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

// y (+)= activation(sums + bias), rounded to y's type. sums may be y itself.
template <class A, class T, class Y>
void finish(CpuContext& context, GemmSize size, const A* sums, const T* bias, Activation activation, Y* y,
            std::int64_t y_row, bool accumulate) {
  const std::int64_t grain = cpu::kGrain / std::max<std::int64_t>(1, size.n) + 1;
  cpu::dispatch_fused(activation, [&]<class Op>() {
    cpu::parallel_for(context, size.m, grain, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorize_if<cpu::kFastType<T>>([&] {
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

// One y slice: the products of its summed batch in the accumulation type, then bias, activation, rounding.
template <class T, class Y>
void eigen_slice(CpuContext& context, const MatmulPlan& problem, const T* a, const T* b, const T* bias,
                 Activation activation, Y* y, bool accumulate) {
  using A = Accumulate<T>;
  const auto& [size, a_row, a_col, b_row, b_col, y_row, batches] = problem;
  constexpr bool kWide = std::is_same_v<T, A>, kDirect = std::is_same_v<Y, A>;
  const bool pack_a = !kWide || !blas_like(size.m, size.k, a_row, a_col),
             pack_b = !kWide || !blas_like(size.k, size.n, b_row, b_col);
  const std::int64_t a_size = pack_a ? size.m * size.k : 0, b_size = pack_b ? size.k * size.n : 0;
  const std::int64_t y_size = kDirect ? 0 : size.m * size.n;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(a_size + b_size + y_size) * sizeof(A));
  A* const packed_a = scratch.as<A>();
  A* const packed_b = packed_a + a_size;
  A* sums = packed_b + b_size;
  if constexpr (kDirect) sums = y;

  const std::int64_t summed = Batches::count(batches.summed, batches.summed_rank);
  for (std::int64_t s = 0; s < summed; ++s) {
    const Offsets at = offsets_of(batches.summed, batches.summed_rank, s);
    MatrixView<T> left{a + at.a, a_row, a_col}, right{b + at.b, b_row, b_col};
    MatrixView<A> wide_left{}, wide_right{};
    if constexpr (kWide) wide_left = left, wide_right = right;
    if (pack_a) wide_left = widen<T, A>(context, left, size.m, size.k, packed_a);
    if (pack_b) wide_right = widen<T, A>(context, right, size.k, size.n, packed_b);
    cpu::gemm_eigen<A>(context, context.threads(), size, wide_left, wide_right, sums,
                       kDirect ? y_row : size.n, s > 0 || (kDirect && accumulate));
  }
  if (!kDirect || bias || activation != Activation::none)
    finish(context, size, sums, bias, activation, y, y_row, !kDirect && accumulate);
}

template <class T, class Y>
void eigen(CpuContext& context, const MatmulPlan& problem, const T* a, const T* b, const T* bias,
           Activation activation, Y* y, bool accumulate) {
  const Batches& batches = problem.batches;
  const std::int64_t kept = Batches::count(batches.kept, batches.kept_rank);
  for (std::int64_t i = 0; i < kept; ++i) {
    const Offsets at = offsets_of(batches.kept, batches.kept_rank, i);
    eigen_slice(context, problem, a + at.a, b + at.b, bias, activation, y + at.y, accumulate);
  }
}

// y = activation(bias), for products without terms. The rows of y are dense.
template <class T, class Y>
void without_products(const T* bias, Activation activation, std::int64_t rows, std::int64_t n, Y* y) {
  using A = Accumulate<T>;
  cpu::dispatch_fused(activation, [&]<class Op>() {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < n; ++j) y[i * n + j] = Y(Op::forward(bias ? A(bias[j]) : A(0)));
    }
  });
}

// oneDNN ---------------------------------------------------------------------------------------------------

/// Null if oneDNN does not support it well.
cpu::Primitive* vendor_primitive(CpuContext& context, const MatmulPlan& problem, DType in, DType out,
                                 bool bias, bool accumulate) {
  const auto& [size, a_row, a_col, b_row, b_col, y_row, batches] = problem;
  if (batches.summed_rank > 0 && is_half(out)) return nullptr;  // would round after each product
  if (!blas_like(size.m, size.k, a_row, a_col) || !blas_like(size.k, size.n, b_row, b_col)) return nullptr;
  cpu::PrimitiveKey key;
  key.op = cpu::PrimitiveKey::Op::matmul;
  key.in = in;
  key.out = out;
  key.bias = bias;
  key.accumulate = accumulate;
  key.threads = cpu::threads_for(context, size.m * size.n * size.k);
  key.sizes = {size.m, size.n, size.k, a_row, a_col, b_row, b_col, y_row};
  return context.primitives().find(key);
}

bool vendor(CpuContext& context, const MatmulPlan& problem, const Tensor& a, const Tensor& b,
            const Tensor& bias, Activation activation, const Tensor& y, bool accumulate) {
  const Batches& batches = problem.batches;
  const std::int64_t summed = Batches::count(batches.summed, batches.summed_rank);
  const auto find = [&](bool add) {
    return vendor_primitive(context, problem, a.dtype(), y.dtype(), bias.defined(), add);
  };
  cpu::Primitive* const first = find(accumulate);
  cpu::Primitive* const next = summed > 1 && !accumulate ? find(true) : first;
  if (!first || !next) return false;
  const auto at = [](const Tensor& t, std::int64_t offset) {
    return t.raw_data() + offset * static_cast<std::int64_t>(size_of(t.dtype()));
  };
  const std::int64_t kept = Batches::count(batches.kept, batches.kept_rank);
  for (std::int64_t i = 0; i < kept; ++i) {
    const Offsets outer = offsets_of(batches.kept, batches.kept_rank, i);
    for (std::int64_t s = 0; s < summed; ++s) {
      const Offsets inner = offsets_of(batches.summed, batches.summed_rank, s);
      (s == 0 ? first : next)
          ->run(context, at(a, outer.a + inner.a), at(b, outer.b + inner.b),
                bias.defined() ? bias.raw_data() : nullptr, at(y, outer.y));
    }
  }
  activate(context, activation, y);
  return true;
}

bool prefers_eigen(GemmSize size, DType dtype) {
  return dtype == DType::f32 && size.m * size.n * size.k <= 16 * 1024;
}

}  // namespace

template <>
void matmul(CpuContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& bias,
            Activation activation, const Tensor& y, Write write) {
  ATH_CHECK(impl != MatmulImpl::mma && impl != MatmulImpl::wgmma,
            "matmul: MatmulImpl::{} is CUDA code, but the tensors are on the CPU", name_of(impl));
  if (y.numel() == 0) return;
  if (!cpu::fuses(activation)) {
    matmul(context, impl, a, b, bias, Activation::none, y, write);
    return activate(context, activation, y);
  }
  const bool accumulate = write == Write::accumulate;
  const MatmulPlan problem(a, b, y);
  const bool nothing = problem.size.k == 0 || a.numel() == 0 || b.numel() == 0;
  if (impl == MatmulImpl::vendor && !cpu::has_onednn())
    athanor::detail::fail<BackendError>("matmul: this build has no oneDNN; use MatmulImpl::automatic");
  if (!nothing && (impl == MatmulImpl::vendor ||
                   (impl == MatmulImpl::automatic && !prefers_eigen(problem.size, a.dtype())))) {
    if (vendor(context, problem, a, b, bias, activation, y, accumulate)) return;
    if (impl == MatmulImpl::vendor)
      athanor::detail::fail<BackendError>(
          "matmul: oneDNN has no fast code for {} {} x {}; use MatmulImpl::automatic", a.dtype(), a.shape(),
          b.shape());
  }
  dispatch_floating(a.dtype(), "matmul", [&]<class T>() {
    const auto run = [&]<class Y>() {
      const T* offset = bias.defined() ? bias.data<T>() : nullptr;
      if (nothing) {
        const std::int64_t n = problem.size.n;
        if (!accumulate) without_products<T, Y>(offset, activation, y.numel() / n, n, y.data<Y>());
      } else {
        eigen<T, Y>(context, problem, a.data<T>(), b.data<T>(), offset, activation, y.data<Y>(), accumulate);
      }
    };
    if (y.dtype() == a.dtype()) {
      run.template operator()<T>();
    } else {
      run.template operator()<Accumulate<T>>();
    }
  });
}

void linear_packed(CpuContext& context, const Tensor& x, const PackedWeights& w, Activation activation,
                   const Tensor& y) {
  if (y.numel() == 0) return;
  const AllocTag tag("workspace");
  const GemmSize size{y.dim(0), y.dim(1), x.dim(1)};
  cpu::PrimitiveKey key;
  key.op = cpu::PrimitiveKey::Op::matmul;
  key.in = key.out = DType::f32;
  key.bias = w.bias().defined();
  key.packed = true;
  key.activation = activation == Activation::relu ? Activation::relu : Activation::none;
  key.threads = cpu::threads_for(context, size.m * size.n * size.k);
  key.sizes = {size.m, size.n, size.k, size.k, 1, 1, size.k, size.n};
  const bool is_small = size.k == 0 || prefers_eigen(size, DType::f32);
  cpu::Primitive* const primitive = is_small ? nullptr : context.primitives().find(key);
  if (!primitive) {
    const Tensor transposed = w.plain().view_as_strided({size.k, size.n}, {1, size.k}, 0);
    return matmul(context, MatmulImpl::automatic, x, transposed, w.bias(), activation, y, Write::overwrite);
  }
  primitive->run(context, x.raw_data(), w.in(context, primitive->layout()),
                 w.bias().defined() ? w.bias().raw_data() : nullptr, y.raw_data());
  if (activation != Activation::relu) activate(context, activation, y);
}

namespace {

// Rows are summed in fixed pieces, and pieces in order: the bits do not depend on the thread count.
constexpr std::int64_t kPiece = 256;
// Several pieces of short rows at a time: a single one would wait for each addition's latency.
constexpr int kTogether = 4, kLanes = 16;

/// Sums of the first kTogether pieces of x, each [kPiece, n], n <= kLanes, followed by kLanes more elements:
/// lanes from n on sum the data after a row, and are dropped.
template <class T, class A> void sum_short_rows(const T* x, std::int64_t n, A* sums) {
  A lanes[kTogether][kLanes] = {};
  for (std::int64_t i = 0; i < kPiece; ++i) {
    for (int piece = 0; piece < kTogether; ++piece) {
      const T* const row = x + (piece * kPiece + i) * n;
      for (int j = 0; j < kLanes; ++j) lanes[piece][j] += A(row[j]);
    }
  }
  for (int piece = 0; piece < kTogether; ++piece)
    for (std::int64_t j = 0; j < n; ++j) sums[piece * n + j] = lanes[piece][j];
}

}  // namespace

template <> void column_sums(CpuContext& context, const Tensor& x, const Tensor& sums, Write write) {
  const std::int64_t n = sums.numel(), rows = n == 0 ? 0 : x.numel() / n;
  if (n == 0) return;
  dispatch_floating(x.dtype(), "column_sums", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t pieces = std::max<std::int64_t>(1, (rows + kPiece - 1) / kPiece);
    const Scratch scratch = context.scratch(static_cast<std::size_t>(pieces * n) * sizeof(A));
    A* const partial = scratch.as<A>();
    const T* const from = x.data<T>();
    const std::int64_t groups = (pieces + kTogether - 1) / kTogether;
    const std::int64_t grain = cpu::kGrain / (kTogether * kPiece * n) + 1;
    cpu::parallel_for(context, groups, grain, [&](std::int64_t begin, std::int64_t end) {
      begin *= kTogether;
      end = std::min(end * kTogether, pieces);
      cpu::vectorize_if<cpu::kFastType<T>>([&] {
        std::int64_t piece = begin;
        if (n <= kLanes) {
          const std::int64_t last = std::min(end, (rows - kLanes) / kPiece);
          for (; piece + kTogether <= last; piece += kTogether)
            sum_short_rows(from + piece * kPiece * n, n, partial + piece * n);
        }
        for (; piece < end; ++piece) {
          A* total = partial + piece * n;
          for (std::int64_t j = 0; j < n; ++j) total[j] = 0;
          const std::int64_t last = std::min(rows, (piece + 1) * kPiece);
          for (std::int64_t i = piece * kPiece; i < last; ++i) {
            const T* row = from + i * n;
            for (std::int64_t j = 0; j < n; ++j) total[j] += A(row[j]);
          }
        }
      });
    });
    const auto accumulate = [&]<class Y>() {
      Y* to = sums.data<Y>();
      for (std::int64_t j = 0; j < n; ++j) {
        A total = write == Write::accumulate ? A(to[j]) : A(0);
        for (std::int64_t piece = 0; piece < pieces; ++piece) total += partial[piece * n + j];
        to[j] = Y(total);
      }
    };
    if (sums.dtype() == x.dtype()) {
      accumulate.template operator()<T>();
    } else {
      accumulate.template operator()<A>();
    }
  });
}

}  // namespace athanor::kernels
