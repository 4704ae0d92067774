#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/matmul_list.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

using cuda::kVec;
using cuda::Vec;

/// The batch axes of a plan, for kernels: offsets of a, b and (kept axes) y.
struct BatchWalks {
  Shape kept, summed;
  std::array<Strides, 3> kept_strides;
  std::array<Strides, 2> summed_strides;

  explicit BatchWalks(const Batches& batches) {
    for (int i = 0; i < batches.kept_rank; ++i) {
      const Batches::Axis& axis = batches.kept[i];
      kept.push_back(axis.size);
      kept_strides[0].push_back(axis.a), kept_strides[1].push_back(axis.b), kept_strides[2].push_back(axis.y);
    }
    for (int i = 0; i < batches.summed_rank; ++i) {
      const Batches::Axis& axis = batches.summed[i];
      summed.push_back(axis.size);
      summed_strides[0].push_back(axis.a), summed_strides[1].push_back(axis.b);
    }
  }

  /// How far an operand (0: a, 1: b) is moved by one step along each axis.
  Strides moves(std::size_t operand) const {
    Strides all = kept_strides[operand];
    for (const std::int64_t stride : summed_strides[operand]) {
      if (all.rank() < kMaxRank) all.push_back(stride);
    }
    return all;
  }
};

template <class T> void multiply(const CudaContext& context, const cuda::MatmulCall& call) {
  const MatmulPlan plan = call.plan();
  const auto& [size, a_row, a_col, b_row, b_col, y_row, batches] = plan;
  const Tensor &y = call.y, &c = call.c;
  const BatchWalks walks(batches);
  cuda::Gemm<T, cuda::MatrixView<T>, cuda::MatrixView<T>, cuda::MatrixTo> g{
      .a = {call.a.data<T>(), size.m, size.k, a_row, a_col, walks.moves(0)},
      .b = {call.b.data<T>(), size.n, size.k, b_col, b_row, walks.moves(1)},
      .to = {y_row, 1},
      .size = {size.m, size.n, size.k, walks.kept.numel(), walks.summed.numel(), y.numel()},
      .batches = cuda::Walk<3>(walks.kept, walks.kept_strides),
      .summed = cuda::Walk<2>(walks.summed, walks.summed_strides),
      .finish = {y.raw_data(), y.dtype() != call.a.dtype(), cuda::data_or_null<T>(call.bias), call.activation,
                 c.defined() ? c.raw_data() : nullptr, call.alpha, call.beta},
      .channels = size.n};
  if (cuda::multiplies_transposed(size.m, size.n)) {
    std::swap(g.a, g.b);
    std::swap(g.size.m, g.size.n);
    std::swap(g.to.row, g.to.column);
    g.batches =
        cuda::Walk<3>(walks.kept, {walks.kept_strides[1], walks.kept_strides[0], walks.kept_strides[2]});
    g.summed = cuda::Walk<2>(walks.summed, {walks.summed_strides[1], walks.summed_strides[0]});
    g.channels_are_rows = true;
  }
  cuda::gemm(context, "matmul", g);
}

// column_sums ----------------------------------------------------------------------------------------------

/// partials [splits, n]. Reads every element once.
template <class T, int W>
__global__ void __launch_bounds__(cuda::kColumnThreads)
    sum_rows(const T* x, cuda::ColumnTiling tiling, Accumulate<T>* partials) {
  __shared__ __align__(16) Accumulate<T> shared[cuda::kColumnThreads / 2 * W];
  const auto at = tiling.thread_tile<W>();
  Accumulate<T> sums[W] = {};
  cuda::for_each_rows<4>(at, [&](std::int64_t here, auto n) {
    Vec<T, W> in[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u) in[u] = cuda::load<W>(x + here + u * at.stride);
#pragma unroll
    for (int u = 0; u < n(); ++u) {
#pragma unroll
      for (int v = 0; v < W; ++v) sums[v] += Accumulate<T>(in[u][v]);
    }
  });
  cuda::write_partials<W, 1>(tiling, at, sums, shared, partials);
}

template <class T, int W>
void launch_sums(const CudaContext& context, const T* x, std::int64_t rows, std::int64_t n,
                 const cuda::Finish<T>& finish) {
  using A = Accumulate<T>;
  const cuda::ColumnTiling tiling(cuda::column_sums_cut(rows, n, W));
  const Scratch scratch = context.scratch(static_cast<std::size_t>(tiling.splits * n) * sizeof(A));
  cuda::launch(context, {"column_sums", tiling.blocks(), cuda::kColumnThreads}, sum_rows<T, W>, x, tiling,
               scratch.as<A>());
  cuda::launch(context, {"column_sums", cuda::blocks_for(context, n, 256), 256}, cuda::gemm_finish<T>,
               scratch.as<A>(), tiling.splits, n, finish, n);
}

}  // namespace

void matmul(CudaContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& bias,
            Activation activation, Out y, Write write) {
  const Tensor nothing;
  const Tensor& c = write == Write::accumulate ? y : nothing;
  if (y.numel() > 0) cuda::run_first(context, cuda::kMatmuls, {impl, a, b, bias, activation, y, c});
}

void matmul_add(CudaContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, float alpha,
                const Tensor& c, float beta, Out y) {
  const Tensor bias;
  if (y.numel() > 0)
    cuda::run_first(context, cuda::kMatmuls, {impl, a, b, bias, Activation::none, y, c, alpha, beta});
}

void column_sums(CudaContext& context, const Tensor& x, Out sums, Write write) {
  const std::int64_t n = sums.numel(), rows = n == 0 ? 0 : x.numel() / n;
  if (n == 0) return;
  dispatch_floating(x.dtype(), "column_sums", [&]<class T>() {
    const cuda::Finish<T> finish{sums.raw_data(), sums.dtype() != x.dtype(), nullptr, Activation::none,
                                 write == Write::accumulate ? sums.raw_data() : nullptr};
    const T* const from = x.data<T>();
    if (n % kVec<T> == 0 && cuda::aligned<kVec<T>>(from)) {
      launch_sums<T, kVec<T>>(context, from, rows, n, finish);
    } else {
      launch_sums<T, 1>(context, from, rows, n, finish);
    }
  });
}

}  // namespace athanor::kernels

namespace athanor::cuda {

bool gemm_matmul(CudaContext& context, const MatmulCall& call) {
  dispatch_floating(call.a.dtype(), "matmul", [&]<class T>() { kernels::multiply<T>(context, call); });
  return true;
}

}  // namespace athanor::cuda
