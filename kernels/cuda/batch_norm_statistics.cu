#include "kernels/copy.h"
#include "kernels/cuda/norm.h"
#include "kernels/norm_ops.h"

// Mean and variance per channel; see batch_norm.cu for how threads lie.

namespace athanor::kernels {
namespace {

using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::dispatch_width;
using cuda::Vec;

constexpr int kThreads = cuda::kColumnThreads;
constexpr int kTogether = 4;  // vectors a thread has in flight

/// Sums of x - shift and of its square, shift a rough mean per channel of rows spread evenly over x: every
/// block works out the same one. Reads x once, 4 FLOPs an element.
template <int V, class T, class A>
__global__ void __launch_bounds__(kThreads, 4)
    sum_deviations(const T* __restrict__ x, ColumnTiling tiling, A* shifts, A* partials) {
  __shared__ A shared[V * kThreads];
  const auto at = tiling.thread_tile<V>();
  const int samples = tiling.rows < 16 ? static_cast<int>(tiling.rows) : 16;
  A shift[V] = {};
  for (int i = at.below; i < samples && at.inside; i += kThreads >> tiling.shift) {
    const std::int64_t row = i * (tiling.rows / samples);
    const auto in = cuda::load<V>(x + row * tiling.channels + at.channel);
#pragma unroll
    for (int k = 0; k < V; ++k) shift[k] += A(in[k]);
  }
  cuda::add_up_columns<kThreads>(shift, 1 << tiling.shift, shared);
  __syncthreads();
  if (at.below == 0) {
#pragma unroll
    for (int k = 0; k < V; ++k) shared[(k << tiling.shift) + at.column] = shift[k] / A(samples);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < V; ++k) shift[k] = shared[(k << tiling.shift) + at.column];
  if (at.split == 0 && at.below == 0 && at.inside) {
#pragma unroll
    for (int k = 0; k < V; ++k) shifts[at.channel + k] = shift[k];
  }

  A sums[2 * V] = {};
  cuda::for_each_rows<kTogether>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u) in[u] = cuda::load<V>(x + here + u * at.stride);
#pragma unroll
    for (int u = 0; u < n(); ++u) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A d = A(in[u][k]) - shift[k];
        sums[k] += d;
        sums[V + k] = std::fma(d, d, sums[V + k]);
      }
    }
  });
  cuda::write_partials<V>(tiling, at, sums, shared, partials);
}

/// Writes stats of a channel, and moves its running ones.
template <class A> struct WriteStatistics {
  std::int64_t channels;
  double eps;
  A* stats;
  A *running_mean, *running_var;  // null: none are kept
  double momentum;

  WriteStatistics(double epsilon, const Tensor& to, const RunningStats& running)
      : channels(to.dim(1)),
        eps(epsilon),
        stats(to.data<A>()),
        running_mean(data_or_null<A>(running.mean)),
        running_var(data_or_null<A>(running.var)),
        momentum(running.momentum) {}
  __device__ __forceinline__ void operator()(std::int64_t c, const Moments& found, double n) const {
    stats[c] = A(found.mean);
    stats[channels + c] = A(inverse_deviation(found.var, eps));
    if (!running_mean) return;
    running_mean[c] = moved_towards(running_mean[c], found.mean, momentum);
    running_var[c] = moved_towards(running_var[c], found.var * n / (n - 1), momentum);
  }
};

/// The row of batch_norm_moments().
struct WriteRow {
  std::int64_t channels;
  double* row;

  __device__ __forceinline__ void operator()(std::int64_t c, const Moments& found, double n) const {
    if (c == 0) row[0] = n;
    row[1 + c] = found.mean;
    row[1 + channels + c] = found.var * n;
  }
};

template <class A, class Write>
__global__ void __launch_bounds__(1024)
    finish_moments(const A* partials, std::int64_t splits, std::int64_t rows, std::int64_t channels,
                   const A* shifts, Write write) {
  const auto total = cuda::total_columns(partials, splits, channels);
  if (!total.valid) return;
  const double n = static_cast<double>(rows);
  const auto shift = static_cast<double>(shifts[total.channel]);
  write(total.channel, moments(shift, total.first, total.second, n), n);
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    join_statistics(const double* rows, std::int64_t ranks, WriteStatistics<A> write) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= write.channels) return;
  const JoinedMoments joined = joined_moments(rows, ranks, write.channels, c);
  write(c, {joined.mean, joined.squares / joined.n}, joined.n);
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    fix_statistics(const A* mean, const A* var, std::int64_t channels, double eps, A* stats) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= channels) return;
  stats[c] = mean[c];
  stats[channels + c] = A(inverse_deviation(static_cast<double>(var[c]), eps));
}

/// Sums x by splits, and has `write` take the moments of every channel.
template <class T, class Write>
void find_moments(const CudaContext& context, const Tensor& x, const Write& write) {
  using A = Accumulate<T>;
  const T* in = x.data<T>();
  const auto run = [&]<int V>() {
    const ColumnTiling tiling = cuda::tiling_of(x, V);
    const std::int64_t channels = tiling.channels;
    const Scratch memory =
        context.scratch((tiling.partial_elements() + static_cast<std::size_t>(channels)) * sizeof(A));
    A *partials = memory.as<A>(), *shifts = partials + tiling.partial_elements();
    cuda::launch(context, {"batch_norm_statistics", tiling.blocks(), kThreads}, sum_deviations<V, T, A>, in,
                 tiling, shifts, partials);
    cuda::launch(context, cuda::total_launch("batch_norm_finish", tiling.splits, channels),
                 finish_moments<A, Write>, partials, tiling.splits, tiling.rows, channels, shifts, write);
  };
  dispatch_width<T>(x.dim(-1), run, in);
}

}  // namespace

template <>
void batch_norm_statistics(CudaContext& context, const Tensor& x, double eps, const Tensor& stats,
                           const RunningStats& running) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    find_moments<T>(context, x, WriteStatistics<Accumulate<T>>(eps, stats, running));
  });
}

template <> void batch_norm_moments(CudaContext& context, const Tensor& x, const Tensor& row) {
  if (x.numel() == 0) return fill(context, row, 0);
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    find_moments<T>(context, x, WriteRow{x.dim(-1), row.data<double>()});
  });
}

template <>
void batch_norm_join(CudaContext& context, const Tensor& rows, double eps, const Tensor& stats,
                     const RunningStats& running) {
  const std::int64_t channels = stats.dim(1);
  if (channels == 0) return;
  dispatch_floating(stats.dtype(), "batch_norm", [&]<class A>() {
    if constexpr (sizeof(A) >= 4) {
      cuda::launch(context, cuda::by_channel("batch_norm_join", channels), join_statistics<A>,
                   rows.data<double>(), rows.dim(0), WriteStatistics<A>(eps, stats, running));
    }
  });
}

template <>
void batch_norm_fixed(CudaContext& context, const RunningStats& running, double eps, const Tensor& stats) {
  dispatch_floating(stats.dtype(), "batch_norm", [&]<class A>() {
    if constexpr (sizeof(A) >= 4) {
      const std::int64_t channels = stats.dim(1);
      cuda::launch(context, cuda::by_channel("batch_norm_fixed", channels), fix_statistics<A>,
                   running.mean.data<A>(), running.var.data<A>(), channels, eps, stats.data<A>());
    }
  });
}

}  // namespace athanor::kernels
