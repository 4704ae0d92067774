#pragma once

#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/context.h"

// The statistics of a batch: the pass that sums, and what the next one makes of the sums.

namespace athanor::cuda {

/// Rows that are in memory, as those to be summed.
template <int V> struct StoredRows {
  static constexpr int kTogether = kNormVectors;  ///< that a thread asks for at once
  static constexpr int kBlocks = kNormBlocks;     ///< that share a multiprocessor

  template <class T> __device__ __forceinline__ Vec<T, V> sample(const T* x, std::int64_t here) const {
    return load<V>(x + here);
  }
  template <class T> __device__ __forceinline__ Vec<T, V> take(const T* x, std::int64_t here) const {
    return load<V>(x + here);
  }
};

/// Sums of rows - shift and of its square, shift a rough mean per channel of rows spread evenly: every block
/// works out the same one. Rows are those of x, or follow from it: one is sampled several times, and taken
/// once. Reads x once, 4 FLOPs an element.
template <class Rows, int V, class T, class A>
__global__ void __launch_bounds__(kNormThreads, Rows::kBlocks)
    sum_deviations(const T* __restrict__ x, Rows rows, ColumnTiling tiling, A* shifts, A* partials) {
  __shared__ A shared[V * kNormThreads];
  const auto at = tiling.thread_tile<V, kNormThreads>(gridDim.x - 1 - blockIdx.x);
  const int samples = tiling.rows < 16 ? static_cast<int>(tiling.rows) : 16;
  A shift[V] = {};
  for (int i = at.below; i < samples && at.inside; i += kNormThreads >> tiling.shift) {
    const std::int64_t row = i * (tiling.rows / samples);
    const auto in = rows.sample(x, row * tiling.channels + at.channel);
#pragma unroll
    for (int k = 0; k < V; ++k) shift[k] += A(in[k]);
  }
  add_up_columns<kNormThreads>(shift, 1 << tiling.shift, shared);
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
  for_each_rows<Rows::kTogether>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u) in[u] = rows.take(x, here + u * at.stride);
#pragma unroll
    for (int u = 0; u < n(); ++u) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A d = widen(in[u], k) - shift[k];
        sums[k] += d;
        sums[V + k] = std::fma(d, d, sums[V + k]);
      }
    }
  });
  write_partials<V, 2, kNormThreads>(tiling, at, sums, shared, partials);
}

/// Writes stats of a channel, and moves its running ones.
template <class A> struct WriteStatistics {
  std::int64_t channels;
  double eps;
  A* stats;
  A *running_mean, *running_var;  // null: none are kept
  double momentum;

  WriteStatistics(double epsilon, const Tensor& to, const kernels::RunningStats& running)
      : channels(to.dim(1)),
        eps(epsilon),
        stats(to.data<A>()),
        running_mean(data_or_null<A>(running.mean)),
        running_var(data_or_null<A>(running.var)),
        momentum(running.momentum) {}
  __device__ __forceinline__ A inverse(const kernels::Moments& found) const {
    return A(kernels::inverse_deviation(found.var, eps));
  }
  __device__ __forceinline__ void operator()(std::int64_t c, const kernels::Moments& found, double n) const {
    stats[c] = A(found.mean);
    stats[channels + c] = inverse(found);
    if (!running_mean) return;
    running_mean[c] = kernels::moved_towards(running_mean[c], found.mean, momentum);
    running_var[c] = kernels::moved_towards(running_var[c], found.var * n / (n - 1), momentum);
  }
};

/// What the pass that sums leaves in scratch memory.
template <class A> struct Summed {
  const A *partials = nullptr, *shifts = nullptr;  // null: nothing
  std::int64_t splits = 0, rows = 0;
};

inline std::size_t summed_elements(const ColumnTiling& tiling) {
  return tiling.partial_elements() + static_cast<std::size_t>(tiling.channels);
}

/// Sums x, or the rows that follow from it, by splits, into `memory` for summed_elements().
template <int V, class T, class A, class Rows = StoredRows<V>>
Summed<A> launch_sums(const CudaContext& context, const T* x, const ColumnTiling& tiling, A* memory,
                      const char* name = "batch_norm_statistics", const Rows& rows = {}) {
  A* shifts = memory + tiling.partial_elements();
  launch(context, {name, tiling.blocks(), kNormThreads}, sum_deviations<Rows, V, T, A>, x, rows, tiling,
         shifts, memory);
  return {memory, shifts, tiling.splits, tiling.rows};
}

/// `sums` if they are there (BatchNormTraining::sums), else those of x.
template <int V, class T, class A>
Summed<A> find_sums(const CudaContext& context, const T* x, const Tensor& sums, const ColumnTiling& tiling,
                    A* memory) {
  if (sums.defined()) return {sums.data<A>(), nullptr, 1, tiling.rows};
  return launch_sums<V>(context, x, tiling, memory);
}

/// Mean, scale and beta of a tile's channels, in shared memory. Where the statistics follow from sums, the
/// first block of a tile also writes them. `tiling`: of what the kernel writes.
template <int V, class A>
__device__ __forceinline__ void prepare(const ChannelTile<V>& tile, const ColumnTiling& tiling, bool writes,
                                        const Summed<A>& summed, const WriteStatistics<A>& write,
                                        const Channels<A>& parameters, A (*values)[kNormChannels]) {
  const double* totals =
      summed.partials ? total_tile(tile, summed.partials, summed.splits, tiling.channels) : nullptr;
  const int i = static_cast<int>(threadIdx.x);
  if (const std::int64_t c = tile.first + i; i < tile.width && c < tiling.channels) {
    A mean, inverse;
    if (totals) {
      const double n = static_cast<double>(summed.rows);
      const kernels::Moments found = kernels::moments(
          summed.shifts ? static_cast<double>(summed.shifts[c]) : 0, totals[i], totals[tile.width + i], n);
      mean = A(found.mean), inverse = write.inverse(found);
      if (writes) write(c, found, n);
    } else {
      mean = parameters.stats[c], inverse = parameters.stats[tiling.channels + c];
    }
    const int slot = tile.slot(i);
    values[0][slot] = mean;
    values[1][slot] = parameters.scale_of(c, inverse);
    values[2][slot] = parameters.beta_of(c);
  }
  __syncthreads();
}

}  // namespace athanor::cuda
