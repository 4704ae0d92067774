// Explained in docs/a_kernel_five_times.md.
#include "kernels/cuda/context.h"
#include "kernels/cuda/gemm_tile.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/norm.h"
#include "kernels/norm_ops.h"
#include "kernels/scratch.h"

// Rows that fit are read once, into registers: by a warp where they are short, else by a block. Longer ones,
// and those off alignment, are read again for every pass. The parameters' gradients are summed down the
// columns by threads that keep their columns over many rows, in the pass that writes dx where rows fit.

namespace athanor::kernels {
namespace {

using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::group_sum;
using cuda::kVec;
using cuda::kWarp;
using cuda::LayerNormPlan;
using cuda::Vec;

constexpr int kThreads = cuda::kLayerNormThreads;

template <int kGroup> using RowOf = cuda::RowShape<kGroup, 0, 1>;

/// gamma or beta of neighbouring elements; null: `otherwise`.
template <int V, class A>
__device__ __forceinline__ Vec<A, V> parameters(const A* from, std::int64_t at, A otherwise) {
  if (from) return cuda::load<V>(from + at);
  Vec<A, V> all;
#pragma unroll
  for (int i = 0; i < V; ++i) all[i] = otherwise;
  return all;
}

template <class T, class A> struct Forward {
  const T* x;
  const A *gamma, *beta;
  A eps;
  std::int64_t rows, size;  // size: elements of a row
  A* stats;
  T* y;
};

/// y of rows of at most kGroup * K vectors: 2 * sizeof(T) bytes and 8 FLOPs an element.
template <int kGroup, int K, class T, class A>
__global__ void __launch_bounds__(kThreads, 4) normalize_rows(Forward<T, A> args) {
  constexpr int V = kVec<T>;
  using Row = RowOf<kGroup>;
  const int lane = Row::rank();
  const int size = static_cast<int>(args.size);
  for (std::int64_t row = Row::first(); row < args.rows; row += Row::step()) {
    const T* __restrict__ from = args.x + row * size;
    Vec<T, V> in[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if ((k * kGroup + lane) * V < size) in[k] = cuda::load<V>(from + (k * kGroup + lane) * V);
    }
    A mean(0), squares(0);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if ((k * kGroup + lane) * V >= size) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) mean += A(in[k][i]);
    }
    mean = group_sum<kGroup>(mean) / A(size);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if ((k * kGroup + lane) * V >= size) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A d = A(in[k][i]) - mean;
        squares = std::fma(d, d, squares);
      }
    }
    squares = group_sum<kGroup>(squares);
    const A inverse = inverse_deviation(squares / A(size), args.eps);
    if (lane == 0) args.stats[2 * row] = mean, args.stats[2 * row + 1] = inverse;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int j = (k * kGroup + lane) * V;
      if (j >= size) continue;
      const auto gamma = parameters<V>(args.gamma, j, A(1)), beta = parameters<V>(args.beta, j, A(0));
#pragma unroll
      for (int i = 0; i < V; ++i) in[k][i] = T(std::fma((A(in[k][i]) - mean) * inverse, gamma[i], beta[i]));
      cuda::store<V>(args.y + row * size + j, in[k]);
    }
  }
}

/// The same, of rows of any length.
template <int kGroup, class T, class A>
__global__ void __launch_bounds__(kThreads, 4) normalize_long_rows(Forward<T, A> args) {
  using Row = RowOf<kGroup>;
  const int lane = Row::rank();
  for (std::int64_t row = Row::first(); row < args.rows; row += Row::step()) {
    const T* from = args.x + row * args.size;
    A mean(0), squares(0);
#pragma unroll 4
    for (std::int64_t j = lane; j < args.size; j += kGroup) mean += A(from[j]);
    mean = group_sum<kGroup>(mean) / A(args.size);
#pragma unroll 4
    for (std::int64_t j = lane; j < args.size; j += kGroup) {
      const A d = A(from[j]) - mean;
      squares = std::fma(d, d, squares);
    }
    squares = group_sum<kGroup>(squares);
    const A inverse = inverse_deviation(squares / A(args.size), args.eps);
    if (lane == 0) args.stats[2 * row] = mean, args.stats[2 * row + 1] = inverse;
    for (std::int64_t j = lane; j < args.size; j += kGroup) {
      const A gamma = args.gamma ? args.gamma[j] : A(1), beta = args.beta ? args.beta[j] : A(0);
      args.y[row * args.size + j] = T(std::fma((A(from[j]) - mean) * inverse, gamma, beta));
    }
  }
}

/// Calls f.operator()<kGroup, K>() with the threads and vectors of a row that hold it, or returns false.
template <class T, class F> bool in_registers(const LayerNormPlan& plan, const F& f) {
  if constexpr (sizeof(T) < 8) {
    constexpr int kWarpMost = LayerNormPlan::kWarpMost, kBlockMost = LayerNormPlan::block_most(sizeof(T));
    if (plan.vectors == 0) return false;
    if (plan.threads == kWarp) {
      plan.vectors == 1 ? f.template operator()<kWarp, 1>() : f.template operator()<kWarp, kWarpMost>();
    } else {
      plan.vectors == 1 ? f.template operator()<kThreads, 1>()
                        : f.template operator()<kThreads, kBlockMost>();
    }
    return true;
  }
  return false;
}

/// Calls a kernel of rows of any length, for a warp or a block each.
template <class Kernel, class Args>
void launch_long(const CudaContext& context, const char* name, const LayerNormPlan& plan, Kernel warp,
                 Kernel block, const Args& args) {
  const unsigned blocks = cuda::row_blocks(context.multiprocessors(), args.rows, plan.threads);
  cuda::launch(context, {name, blocks, kThreads}, plan.threads == kWarp ? warp : block, args);
}

}  // namespace

void layer_norm_forward(CudaContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double eps, Out stats, Out y) {
  const std::int64_t rows = stats.dim(0);
  if (rows == 0) return;
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Forward<T, A> args{x.data<T>(), data_or_null<A>(gamma), data_or_null<A>(beta), A(eps),
                             rows,        x.numel() / rows,       stats.data<A>(),       y.data<T>()};
    const auto run = [&]<int kGroup, int K>() {
      cuda::launch(context, {"layer_norm", cuda::row_blocks<RowOf<kGroup>>(context, rows), kThreads},
                   normalize_rows<kGroup, K, T, A>, args);
    };
    const LayerNormPlan plan(sizeof(T), args.size, {args.x, args.gamma, args.beta, args.y});
    if (in_registers<T>(plan, run)) return;
    launch_long(context, "layer_norm", plan, normalize_long_rows<kWarp, T, A>,
                normalize_long_rows<kThreads, T, A>, args);
  });
}

// Backward -------------------------------------------------------------------------------------------------

namespace {

template <class T, class A> struct Backward {
  const T *x, *dy;
  const A *gamma, *stats;
  std::int64_t rows, size;
  T* dx;        // null if not needed
  A* partials;  // [blocks, 2, size]: sums of dy * normalized and of dy; null if not needed
};

/// What the threads of a block have summed up for dgamma and dbeta, joined and written to partials.
template <int kGroup, int K, int V, class A>
__device__ __forceinline__ void write_sums(A (&sums)[2 * K * V], int size, A* partials) {
  if constexpr (kGroup == kWarp) {
    __shared__ A shared[2 * K * V * kThreads / 2];
    cuda::add_up_columns<kThreads>(sums, kWarp, shared);
    if (threadIdx.x >= kWarp) return;
  }
  const int lane = RowOf<kGroup>::rank();
#pragma unroll
  for (int kind = 0; kind < 2; ++kind) {
    A* to = partials + (std::int64_t{blockIdx.x} * 2 + kind) * size;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int j = (k * kGroup + lane) * V;
      if (j >= size) continue;
      Vec<A, V> out;
#pragma unroll
      for (int i = 0; i < V; ++i) out[i] = sums[(kind * K + k) * V + i];
      cuda::store<V>(to + j, out);
    }
  }
}

/// dx of rows of at most kGroup * K vectors, and a block's sums for dgamma and dbeta: 3 * sizeof(T) bytes and
/// 16 FLOPs an element, 3 of them for what is computed twice rather than kept.
template <int kGroup, int K, class T, class A>
__global__ void __launch_bounds__(kThreads, 2) row_gradients(Backward<T, A> args) {
  constexpr int V = kVec<T>;
  using Row = RowOf<kGroup>;
  const int lane = Row::rank();
  const int size = static_cast<int>(args.size);
  A sums[2 * K * V] = {};
  // Sums and two rows take 96 of a thread's 128 registers: what can be computed again is not kept.
  const auto blocks = static_cast<int>(gridDim.x);
  for (std::int64_t row = Row::first(); row < args.rows;
       row += std::int64_t{cuda::afresh(blocks)} * (kThreads / kGroup)) {
    Vec<T, V> in[K], gradient[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int j = (k * kGroup + lane) * V;
      if (j >= size) continue;
      in[k] = cuda::load<V>(args.x + row * size + j);
      gradient[k] = cuda::load<V>(args.dy + row * size + j);
    }
    const A mean = args.stats[2 * row], inverse = args.stats[2 * row + 1];
    A mean_g(0), mean_product(0);  // of g and g * normalized
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int j = (k * kGroup + lane) * V;
      if (j >= size) continue;
      const auto gamma = parameters<V>(args.gamma, j, A(1));
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A dy = cuda::widen(gradient[k], i), normalized = (cuda::widen(in[k], i) - mean) * inverse;
        const A g = dy * gamma[i];
        mean_g += g;
        mean_product = std::fma(g, normalized, mean_product);
        sums[k * V + i] = std::fma(dy, normalized, sums[k * V + i]);
        sums[(K + k) * V + i] += dy;
      }
    }
    if (!args.dx) continue;
    mean_g = group_sum<kGroup>(mean_g) / A(size);
    mean_product = group_sum<kGroup>(mean_product) / A(size);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int j = (k * kGroup + lane) * V;
      if (j >= size) continue;
      const auto gamma = parameters<V>(args.gamma, j, A(1));
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A normalized = (cuda::widen(in[k], i) - mean) * inverse,
                g = cuda::widen(gradient[k], i) * gamma[i];
        in[k][i] = T(layer_norm_dx(g, normalized, inverse, mean_g, mean_product));
      }
      cuda::store<V>(args.dx + row * cuda::afresh(size) + j, in[k]);
    }
  }
  if (args.partials) write_sums<kGroup, K, V>(sums, size, args.partials);
}

/// dx of rows of any length.
template <int kGroup, class T, class A>
__global__ void __launch_bounds__(kThreads) long_row_gradients(Backward<T, A> args) {
  using Row = RowOf<kGroup>;
  const int lane = Row::rank();
  for (std::int64_t row = Row::first(); row < args.rows; row += Row::step()) {
    const T *x = args.x + row * args.size, *dy = args.dy + row * args.size;
    const A mean = args.stats[2 * row], inverse = args.stats[2 * row + 1];
    const auto g = [&](std::int64_t j) { return A(dy[j]) * (args.gamma ? args.gamma[j] : A(1)); };
    A mean_g(0), mean_product(0);
#pragma unroll 4
    for (std::int64_t j = lane; j < args.size; j += kGroup) {
      mean_g += g(j);
      mean_product = std::fma(g(j), (A(x[j]) - mean) * inverse, mean_product);
    }
    mean_g = group_sum<kGroup>(mean_g) / A(args.size);
    mean_product = group_sum<kGroup>(mean_product) / A(args.size);
    for (std::int64_t j = lane; j < args.size; j += kGroup)
      args.dx[row * args.size + j] =
          T(layer_norm_dx(g(j), (A(x[j]) - mean) * inverse, inverse, mean_g, mean_product));
  }
}

/// A block's sums for dgamma and dbeta, where rows do not fit: another 2 * sizeof(T) bytes an element.
template <class T, class A>
__global__ void __launch_bounds__(kThreads) sum_parameters(Backward<T, A> args, ColumnTiling tiling) {
  __shared__ A shared[kThreads];
  const auto at = tiling.thread_tile<1>();
  A sums[2] = {};
  std::int64_t row = at.row;
  cuda::for_each_rows<4>(at, [&](std::int64_t here, auto n) {
    A in[n()], gradient[n()], mean[n()], inverse[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u, row += at.step) {
      in[u] = A(args.x[here + u * at.stride]);
      gradient[u] = A(args.dy[here + u * at.stride]);
      mean[u] = args.stats[2 * row];
      inverse[u] = args.stats[2 * row + 1];
    }
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      sums[0] = std::fma(gradient[u], (in[u] - mean[u]) * inverse[u], sums[0]);
      sums[1] += gradient[u];
    }
  });
  cuda::write_partials<1>(tiling, at, sums, shared, args.partials);
}

/// Runs both sums of a backward pass and, between them, what fills [splits, 2, size] partials.
template <class A, class F>
void with_partials(const CudaContext& context, std::int64_t splits, std::int64_t size,
                   const GradientTarget& dgamma, const GradientTarget& dbeta, const F& fill) {
  if (!dgamma.tensor.defined() && !dbeta.tensor.defined()) return fill(static_cast<A*>(nullptr));
  const Scratch memory = context.scratch(static_cast<std::size_t>(splits * 2 * size) * sizeof(A));
  fill(memory.as<A>());
  cuda::launch_finish(context, "layer_norm_finish", memory.as<A>(), splits, size, dgamma, dbeta);
}

}  // namespace

void layer_norm_backward(CudaContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, Out dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Tensor& like = dgamma.tensor.defined() ? dgamma.tensor : dbeta.tensor;
    const std::int64_t rows = stats.dim(0), size = rows > 0         ? x.numel() / rows
                                                   : like.defined() ? like.numel()
                                                                    : 0;
    Backward<T, A> args{x.data<T>(), dy.data<T>(), data_or_null<A>(gamma), stats.data<A>(),
                        rows,        size,         data_or_null<T>(dx),    nullptr};
    const LayerNormPlan plan(sizeof(T), size, {args.x, args.dy, args.gamma, args.dx});
    const std::int64_t splits = plan.splits(rows);
    const auto run = [&]<int kGroup, int K>() {
      with_partials<A>(context, splits, size, dgamma, dbeta, [&](A* partials) {
        args.partials = partials;
        cuda::launch(context, {"layer_norm_backward", static_cast<unsigned>(splits), kThreads},
                     row_gradients<kGroup, K, T, A>, args);
      });
    };
    if (in_registers<T>(plan, run)) return;
    if (args.dx)
      launch_long(context, "layer_norm_backward", plan, long_row_gradients<kWarp, T, A>,
                  long_row_gradients<kThreads, T, A>, args);
    const ColumnTiling tiling(plan.columns(rows));
    with_partials<A>(context, splits, size, dgamma, dbeta, [&](A* partials) {
      args.partials = partials;
      if (!partials) return;
      cuda::launch(context, {"layer_norm_sums", tiling.blocks(), kThreads}, sum_parameters<T, A>, args,
                   tiling);
    });
  });
}

}  // namespace athanor::kernels
