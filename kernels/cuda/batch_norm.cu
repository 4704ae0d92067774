#include "kernels/copy.h"
#include "kernels/cuda/batch_norm_statistics.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/max_windows.h"
#include "kernels/scratch.h"

// Forward: mean and variance per channel, then y. Backward is batch_norm_backward.cu.

namespace athanor::kernels {
namespace {

using cuda::Channels;
using cuda::ChannelTile;
using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::dispatch_width;
using cuda::Summed;
using cuda::Vec;
using cuda::WriteStatistics;

constexpr int kThreads = cuda::kNormThreads;

// Statistics -----------------------------------------------------------------------------------------------

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
__global__ void __launch_bounds__(cuda::kColumnThreads)
    join_statistics(const double* rows, std::int64_t ranks, WriteStatistics<A> write) {
  const std::int64_t c = std::int64_t{blockIdx.x} * cuda::kColumnThreads + threadIdx.x;
  if (c >= write.channels) return;
  const JoinedMoments joined = joined_moments(rows, ranks, write.channels, c);
  write(c, {joined.mean, joined.squares / joined.n}, joined.n);
}

template <class A>
__global__ void __launch_bounds__(cuda::kColumnThreads)
    fix_statistics(const A* mean, const A* var, std::int64_t channels, double eps, A* stats) {
  const std::int64_t c = std::int64_t{blockIdx.x} * cuda::kColumnThreads + threadIdx.x;
  if (c >= channels) return;
  stats[c] = mean[c];
  stats[channels + c] = A(inverse_deviation(static_cast<double>(var[c]), eps));
}

/// The statistics of each channel from its sums, and the coefficients of a PendingNorm.
template <class T, class A>
__global__ void __launch_bounds__(cuda::kColumnThreads)
    find_coefficients(const A* sums, std::int64_t rows, WriteStatistics<A> write, Channels<A> parameters,
                      T* coefficients) {
  const std::int64_t c = std::int64_t{blockIdx.x} * cuda::kColumnThreads + threadIdx.x;
  if (c >= write.channels) return;
  const double n = static_cast<double>(rows);
  const Moments found =
      moments(0, static_cast<double>(sums[c]), static_cast<double>(sums[write.channels + c]), n);
  write(c, found, n);
  // At most f16's largest number: where the values of a channel are all alike, both may be larger.
  const auto rounded = [](double value) {
    constexpr double kMost = 65504;
    return T(A(value > kMost ? kMost : value < -kMost ? -kMost : value));
  };
  const T scale = rounded(static_cast<double>(parameters.scale_of(c, write.inverse(found))));
  coefficients[c] = scale;
  coefficients[write.channels + c] =
      rounded(static_cast<double>(parameters.beta_of(c)) - found.mean * static_cast<double>(A(scale)));
}

/// Sums x, and has `write` take the moments of every channel.
template <class T, class Write>
void find_moments(const CudaContext& context, const Tensor& x, const Write& write) {
  using A = Accumulate<T>;
  const T* in = x.data<T>();
  const auto run = [&]<int V>() {
    const ColumnTiling tiling = cuda::norm_tiling(x, V);
    const Scratch memory = context.scratch(cuda::summed_elements(tiling) * sizeof(A));
    const auto summed = cuda::launch_sums<V>(context, in, tiling, memory.as<A>());
    cuda::launch(context, cuda::total_launch("batch_norm_finish", tiling.splits, tiling.channels),
                 finish_moments<A, Write>, summed.partials, tiling.splits, tiling.rows, tiling.channels,
                 summed.shifts, write);
  };
  dispatch_width<T>(x.dim(-1), run, in);
}

// The statistics of a tensor that max pooling makes ---------------------------------------------------------

/// Rows of the pooled tensor, which they are written to when they are taken. kSide: see WindowReader.
template <int kSide, int V, class T> struct PooledRows {
  static constexpr int kTogether = 1, kBlocks = 1;  // a window in flight and its maxima take the registers

  cuda::WindowReader<kSide, V> reader;
  T* y;
  std::uint8_t* index;  // null: not needed

  using Maxima = cuda::Maxima<V, Accumulate<T>>;
  __device__ __forceinline__ Maxima maxima(const T* x, std::int64_t here) const {
    const auto window = reader[here / V];
    Maxima best(window.first);
    reader.template for_each<kSide>(x, window, [&](const Vec<T, V>& in, std::int32_t place) {
#pragma unroll
      for (int k = 0; k < V; ++k) best.offer(k, cuda::widen(in, k), place);
    });
    return best;
  }
  __device__ __forceinline__ Vec<T, V> sample(const T* x, std::int64_t here) const {
    return maxima(x, here).template values<T>();
  }
  __device__ __forceinline__ Vec<T, V> take(const T* x, std::int64_t here) const {
    const Maxima best = maxima(x, here);
    best.store(y + here, index ? index + here : nullptr);
    return best.template values<T>();
  }
};

/// What is pooled, where a norm follows in the same call.
struct Unpooled {
  const PoolWindows& windows;
  const Tensor &x, &index;
};

/// Pools, and sums what it writes to y.
template <int V, class T, class A>
Summed<A> pool_and_sum(const CudaContext& context, const Unpooled& from, const Tensor& y,
                       const ColumnTiling& tiling, A* memory) {
  const auto launch = [&]<int kSide>() {
    const PooledRows<kSide, V, T> rows{
        {from.windows, y}, y.data<T>(), data_or_null<std::uint8_t>(from.index)};
    return cuda::launch_sums<V>(context, from.x.data<T>(), tiling, memory, "max_pool2d_statistics", rows);
  };
  if constexpr (V > 1) {
    if (cuda::square_windows(from.windows, 2)) return launch.template operator()<2>();
  }
  return launch.template operator()<0>();
}

// Application ----------------------------------------------------------------------------------------------

/// Vectors of each tensor that a thread has in flight: what fits in 64 registers.
template <class Op, bool kResidual, bool kMask, int V> constexpr int in_flight() {
  if (!kResidual && V == 8) return 3;
  if (!kResidual) return cuda::kNormVectors;
  return kMask || (V == 8 && std::is_same_v<Op, Silu>) ? 1 : 2;
}

template <class T> struct Results {
  T* y;
  std::uint8_t* mask;  // of the elements whose gradient passes, where kMask
};

/// y of a block's tile: 2 * sizeof(T) bytes (3 with a residual) and 3 FLOPs an element, and the activation's.
template <class Op, bool kResidual, bool kMask, int V, class T, class A>
__global__ void __launch_bounds__(kThreads, cuda::kNormBlocks)
    apply(const T* __restrict__ x, const T* __restrict__ residual, ColumnTiling tiling, Summed<A> summed,
          WriteStatistics<A> write, Channels<A> parameters, Results<T> results) {
  __shared__ __align__(16) A values[3][cuda::kNormChannels];
  const auto at = tiling.thread_tile<V, kThreads>();
  const ChannelTile<V> tile(tiling, at);
  cuda::prepare<V>(tile, tiling, at.split == 0, summed, write, parameters, values);
  constexpr int E = ChannelTile<V>::kEach;
  cuda::for_each_rows<in_flight<Op, kResidual, kMask, V>()>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()], out[n()];
    [[maybe_unused]] Vec<T, V> plus[n()];
    [[maybe_unused]] unsigned passes = 0;  // a byte for each vector
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      in[u] = cuda::load<V>(x + here + u * at.stride);
      if constexpr (kResidual) plus[u] = cuda::load<V>(residual + here + u * at.stride);
    }
    cuda::read_anew();
#pragma unroll
    for (int first = 0; first < V; first += E) {
      const auto mean = tile.load(values[0], at.column, first),
                 scale = tile.load(values[1], at.column, first),
                 beta = tile.load(values[2], at.column, first);
#pragma unroll
      for (int u = 0; u < n(); ++u) {
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const int k = first + i;
          A pre = std::fma(cuda::widen(in[u], k) - mean[i], scale[i], beta[i]);
          if constexpr (kResidual) pre += cuda::widen(plus[u], k);
          const T y = T(Op::forward(pre));
          out[u][k] = y;
          if constexpr (kMask) passes |= (A(y) <= A(0) ? 0u : 1u) << (8 * u + k);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      cuda::store<V>(results.y + here + u * at.stride, out[u]);
      if constexpr (kMask) cuda::store_mask<V>(results.mask, here + u * at.stride, passes >> 8 * u & 0xffu);
    }
  });
}

/// What both forward functions are called with.
struct Forward {
  Activation activation;
  const Tensor &x, &gamma, &beta, &residual, &stats, &y, &mask;
  double eps = 0;
  RunningStats running = {};
  Tensor sums = {};
  bool training = false;           ///< stats are still to be found
  const Unpooled* pool = nullptr;  ///< x is still to be found, too
};

template <class T, class Op> void run_forward(const CudaContext& context, const Forward& args) {
  using A = Accumulate<T>;
  const T *in = args.x.data<T>(), *plus = data_or_null<T>(args.residual);
  const Results<T> results{args.y.data<T>(), data_or_null<std::uint8_t>(args.mask)};
  const WriteStatistics<A> write(args.eps, args.stats, args.running);
  const Channels<A> parameters(args.stats, args.gamma, args.beta);
  const auto run = [&]<int V>() {
    const ColumnTiling tiling = cuda::norm_tiling(args.x, V);
    const bool sums = args.training && !args.sums.defined();
    const Scratch memory = context.scratch(sums ? cuda::summed_elements(tiling) * sizeof(A) : 0);
    Summed<A> summed;
    if (args.pool) {
      summed = pool_and_sum<V, T>(context, *args.pool, args.x, tiling, memory.as<A>());
    } else if (args.training) {
      summed = cuda::find_sums<V>(context, in, args.sums, tiling, memory.as<A>());
    }
    const ColumnTiling writers = cuda::norm_writer_tiling(context, tiling, V);
    const auto launch = [&](auto kernel) {
      cuda::launch(context, {"batch_norm", writers.blocks(), kThreads}, kernel, in, plus, writers, summed,
                   write, parameters, results);
    };
    if constexpr (std::is_same_v<Op, Relu>) {
      if (results.mask) return launch(apply<Op, true, true, V, T, A>);
    }
    launch(plus ? apply<Op, true, false, V, T, A> : apply<Op, false, false, V, T, A>);
  };
  const T* const unpooled = args.pool ? args.pool->x.data<T>() : nullptr;
  const auto* const index = args.pool ? data_or_null<std::uint8_t>(args.pool->index) : nullptr;
  dispatch_width<T>(args.x.dim(-1), run, in, plus, results.y, unpooled, index);
}

void run_forward(const CudaContext& context, const Forward& args) {
  if (args.x.numel() == 0) return;
  dispatch_floating(args.x.dtype(), "batch_norm", [&]<class T>() {
    cuda::dispatch_activation<T>(args.activation, [&]<class Op>() { run_forward<T, Op>(context, args); });
  });
}

}  // namespace

void batch_norm_statistics(CudaContext& context, const Tensor& x, double eps, Out stats,
                           const RunningStats& running) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    find_moments<T>(context, x, WriteStatistics<Accumulate<T>>(eps, stats, running));
  });
}

void batch_norm_moments(CudaContext& context, const Tensor& x, Out row) {
  if (x.numel() == 0) return fill(context, row, 0);
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    find_moments<T>(context, x, WriteRow{x.dim(-1), row.data<double>()});
  });
}

void batch_norm_join(CudaContext& context, const Tensor& rows, double eps, Out stats,
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

void batch_norm_coefficients(CudaContext& context, const NormTerm& norm, Out coefficients) {
  const std::int64_t channels = norm.x.dim(-1);
  dispatch_floating(norm.x.dtype(), "batch_norm", [&]<class T>() {
    using A = Accumulate<T>;
    cuda::launch(context, cuda::by_channel("batch_norm_coefficients", channels), find_coefficients<T, A>,
                 norm.sums.data<A>(), norm.x.numel() / channels,
                 WriteStatistics<A>(norm.eps, norm.stats, norm.running),
                 Channels<A>(norm.stats, norm.gamma, norm.beta), coefficients.data<T>());
  });
}

void batch_norm_fixed(CudaContext& context, const RunningStats& running, double eps, Out stats) {
  dispatch_floating(stats.dtype(), "batch_norm", [&]<class A>() {
    if constexpr (sizeof(A) >= 4) {
      const std::int64_t channels = stats.dim(1);
      cuda::launch(context, cuda::by_channel("batch_norm_fixed", channels), fix_statistics<A>,
                   running.mean.data<A>(), running.var.data<A>(), channels, eps, stats.data<A>());
    }
  });
}

std::int64_t batch_norm_mask_bytes(CudaContext&, Activation activation, const Tensor& x) {
  return mask_of_relu(activation, x);
}

void batch_norm_forward(CudaContext& context, Activation activation, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, const Tensor& stats, const Tensor& residual, Out y, Out mask) {
  run_forward(context, {activation, x, gamma, beta, residual, stats, y, mask});
}

void batch_norm_training(CudaContext& context, const BatchNormTraining& args) {
  run_forward(context, {args.activation, args.x, args.gamma, args.beta, args.residual, args.stats, args.y,
                        args.mask, args.eps, args.running, args.sums, true});
}

void max_pool_batch_norm_training(CudaContext& context, const PoolWindows& windows, const Tensor& x,
                                  Out index, const BatchNormTraining& args) {
  const Unpooled pool{windows, x, index};
  run_forward(context, {args.activation,
                        args.x,
                        args.gamma,
                        args.beta,
                        args.residual,
                        args.stats,
                        args.y,
                        args.mask,
                        args.eps,
                        args.running,
                        {},
                        true,
                        &pool});
}

}  // namespace athanor::kernels
