#include "kernels/cuda/batch_norm_statistics.h"
#include "kernels/cuda/context.h"
#include "kernels/scratch.h"

// y = ReLU(norm(a) + norm(b)): the end of a residual block whose shortcut is normalised, too. The second norm
// has no result of its own in memory, and neither has its gradient: y is made from a and b at once, and dL/da
// and dL/db from a, b, dL/dy and the mask.

namespace athanor::kernels {
namespace {

using cuda::Channels;
using cuda::ChannelTile;
using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::dispatch_width;
using cuda::GradientTotals;
using cuda::Summed;
using cuda::Target;
using cuda::Vec;
using cuda::WriteStatistics;

constexpr int kThreads = cuda::kNormThreads;

// Forward --------------------------------------------------------------------------------------------------

/// One norm, as the kernel that applies it sees it.
template <class T, class A> struct Term {
  const T* x;
  Summed<A> summed;
  WriteStatistics<A> write;
  Channels<A> parameters;
};

/// y of a block's tile: 3 * sizeof(T) bytes and 7 FLOPs an element, and a bit.
template <int V, class T, class A>
__global__ void __launch_bounds__(kThreads, cuda::kNormBlocks)
    apply(Term<T, A> a, Term<T, A> b, ColumnTiling tiling, T* __restrict__ y, std::uint8_t* mask) {
  __shared__ __align__(16) A values[6][cuda::kNormChannels];
  const auto at = tiling.thread_tile<V, kThreads>();
  const ChannelTile<V> tile(tiling, at);
  cuda::prepare<V>(tile, tiling, at.split == 0, a.summed, a.write, a.parameters, values);
  cuda::prepare<V>(tile, tiling, at.split == 0, b.summed, b.write, b.parameters, values + 3);
  constexpr int E = ChannelTile<V>::kEach;
  cuda::for_each_rows<1>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> first[n()], second[n()], out[n()];
    unsigned passes[n()] = {};
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      first[u] = cuda::load<V>(a.x + here + u * at.stride);
      second[u] = cuda::load<V>(b.x + here + u * at.stride);
    }
    cuda::read_anew();
#pragma unroll
    for (int from = 0; from < V; from += E) {
      Vec<A, E> value[6];
#pragma unroll
      for (int i = 0; i < 6; ++i) value[i] = tile.load(values[i], at.column, from);
#pragma unroll
      for (int u = 0; u < n(); ++u) {
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const int k = from + i;
          const A residual =  // rounded as the result of an op of its own
              A(T(std::fma(cuda::widen(second[u], k) - value[3][i], value[4][i], value[5][i])));
          const A pre = std::fma(cuda::widen(first[u], k) - value[0][i], value[1][i], value[2][i]) + residual;
          const T result = T(Relu::forward(pre));
          out[u][k] = result;
          passes[u] |= (A(result) <= A(0) ? 0u : 1u) << k;
        }
      }
    }
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      cuda::store<V>(y + here + u * at.stride, out[u]);
      if (mask) cuda::store_mask<V>(mask, here + u * at.stride, passes[u]);
    }
  });
}

template <class T, class A> Term<T, A> term_of(const NormTerm& norm, const Summed<A>& summed) {
  return {norm.x.data<T>(), summed, WriteStatistics<A>(norm.eps, norm.stats, norm.running),
          Channels<A>(norm.stats, norm.gamma, norm.beta)};
}

// Backward -------------------------------------------------------------------------------------------------

template <class T> struct Sources {
  const T *a, *b, *dy;
  const std::uint8_t* mask;  // null: dy is of before the ReLU
};

/// dL/d(pre) of elements of a vector.
template <class T, int V, class A>
__device__ __forceinline__ A passed(const Vec<T, V>& dy, unsigned bits, int k, A) {
  return (bits >> k & 1u) != 0 ? cuda::widen(dy, k) : A(0);
}

/// Sums of g, of g (a - mean of a) and of g (b - mean of b), g = dL/d(pre), as the partial sums of both
/// norms. Moves 3 * sizeof(T) bytes an element.
template <int V, class T, class A>
__global__ void __launch_bounds__(kThreads, cuda::kNormBlocks)
    sum_gradients(Sources<T> from, ColumnTiling tiling, const A* means_a, const A* means_b, A* partials_a,
                  A* partials_b) {
  __shared__ A shared[V * kThreads];
  [[maybe_unused]] __shared__ __align__(16) A values[2][cuda::kNormChannels];
  const auto at = tiling.thread_tile<V, kThreads>(gridDim.x - 1 - blockIdx.x);
  const ChannelTile<V> tile(tiling, at);
  const int i = static_cast<int>(threadIdx.x);
  if (const std::int64_t c = tile.first + i; i < tile.width && c < tiling.channels) {
    values[0][tile.slot(i)] = means_a[c];
    values[1][tile.slot(i)] = means_b[c];
  }
  __syncthreads();

  constexpr int E = ChannelTile<V>::kEach;
  A sums[2 * V] = {}, second[V] = {};
  cuda::for_each_rows<1>(at, [&](std::int64_t here, auto) {
    const Vec<T, V> a = cuda::load<V>(from.a + here), b = cuda::load<V>(from.b + here),
                    dy = cuda::load<V>(from.dy + here);
    const unsigned bits = cuda::load_mask<V>(from.mask, here);
    cuda::read_anew();
#pragma unroll
    for (int first = 0; first < V; first += E) {
      const auto mean_a = tile.load(values[0], at.column, first);
#pragma unroll
      for (int j = 0; j < E; ++j) {
        const int k = first + j;
        const A g = passed(dy, bits, k, A(0));
        sums[k] += g;
        sums[V + k] = std::fma(g, cuda::widen(a, k) - mean_a[j], sums[V + k]);
      }
      cuda::read_anew();  // eight means at once would not leave enough registers
      const auto mean_b = tile.load(values[1], at.column, first);
#pragma unroll
      for (int j = 0; j < E; ++j) {
        const int k = first + j;
        second[k] = std::fma(passed(dy, bits, k, A(0)), cuda::widen(b, k) - mean_b[j], second[k]);
      }
    }
  });
  // The sum of g is that of both norms.
  A sums_b[2 * V];
#pragma unroll
  for (int k = 0; k < V; ++k) sums_b[k] = sums[k], sums_b[V + k] = second[k];
  cuda::write_partials<V, 2, kThreads>(tiling, at, sums, shared, partials_a);
  __syncthreads();
  cuda::write_partials<V, 2, kThreads>(tiling, at, sums_b, shared, partials_b);
}

/// What the pass that writes dx needs of one norm.
template <class T, class A> struct Gradient {
  const A* partials;
  Channels<A> parameters;
  GradientTotals<A> totals;
  T* dx;  // null: not needed
};

/// Mean, scale, offset and slope of a tile's channels, in shared memory; the first block of a tile also
/// writes the parameters' gradients.
template <int V, class T, class A>
__device__ __forceinline__ void prepare_gradient(const ChannelTile<V>& tile, const ColumnTiling& tiling,
                                                 std::int64_t splits, bool writes, const Gradient<T, A>& of,
                                                 A (*values)[cuda::kNormChannels]) {
  const double* found = cuda::total_tile(tile, of.partials, splits, tiling.channels);
  const int i = static_cast<int>(threadIdx.x);
  if (const std::int64_t c = tile.first + i; i < tile.width && c < tiling.channels) {
    const double first = found[i], second = found[tile.width + i];
    const int slot = tile.slot(i);
    values[0][slot] = of.parameters.stats[c];
    values[1][slot] = of.parameters.scale_of(c, of.parameters.stats[tiling.channels + c]);
    values[2][slot] = of.totals.offset(first);
    values[3][slot] = of.totals.slope(c, second);
    if (writes) of.totals.put(c, first, second);
  }
  __syncthreads();
}

/// dx of one norm in a vector of rows.
template <int V, class T, class A>
__device__ __forceinline__ void write_dx_of(const ChannelTile<V>& tile, A (*values)[cuda::kNormChannels],
                                            int column, const Vec<T, V>& x, const Vec<T, V>& dy,
                                            unsigned bits, T* dx) {
  constexpr int E = ChannelTile<V>::kEach;
  Vec<T, V> out;
#pragma unroll
  for (int first = 0; first < V; first += E) {
    const auto mean = tile.load(values[0], column, first), scale = tile.load(values[1], column, first),
               offset = tile.load(values[2], column, first), slope = tile.load(values[3], column, first);
#pragma unroll
    for (int j = 0; j < E; ++j) {
      const int k = first + j;
      out[k] = T(batch_norm_dx(passed(dy, bits, k, A(0)), cuda::widen(x, k) - mean[j], scale[j], slope[j],
                               offset[j]));
    }
  }
  cuda::store<V>(dx, out);
}

/// dL/da and dL/db of a block's tile: 5 * sizeof(T) bytes an element.
template <int V, class T, class A>
__global__ void __launch_bounds__(kThreads, cuda::kNormBlocks)
    write_dx(Sources<T> from, ColumnTiling tiling, std::int64_t splits, Gradient<T, A> of_a,
             Gradient<T, A> of_b) {
  __shared__ __align__(16) A values[8][cuda::kNormChannels];
  const auto at = tiling.thread_tile<V, kThreads>();
  const ChannelTile<V> tile(tiling, at);
  prepare_gradient<V>(tile, tiling, splits, at.split == 0, of_a, values);
  prepare_gradient<V>(tile, tiling, splits, at.split == 0, of_b, values + 4);
  cuda::for_each_rows<1>(at, [&](std::int64_t here, auto) {
    Vec<T, V> a{}, b{};
    if (of_a.dx) a = cuda::load<V>(from.a + here);
    if (of_b.dx) b = cuda::load<V>(from.b + here);
    const Vec<T, V> dy = cuda::load<V>(from.dy + here);
    // Sums are given in f16 alone; others have no registers for the question.
    const bool masked = !std::is_same_v<T, Half> || from.mask;
    const unsigned bits = masked ? cuda::load_mask<V>(from.mask, here) : 0xffu;
    cuda::read_anew();
    if (of_a.dx) write_dx_of<V>(tile, values, at.column, a, dy, bits, of_a.dx + here);
    if (of_b.dx) write_dx_of<V>(tile, values + 4, at.column, b, dy, bits, of_b.dx + here);
  });
}

template <class T, class A>
Gradient<T, A> gradient_of(const NormTerm& norm, const NormGradients& to, const A* partials, double share) {
  const Channels<A> parameters(norm.stats, norm.gamma, norm.beta);
  const GradientTotals<A> totals{parameters.stats + norm.x.dim(-1), share, Target<A>(to.dgamma),
                                 Target<A>(to.dbeta), to.sums.defined()};
  return {partials, parameters, totals, data_or_null<T>(to.dx)};
}

}  // namespace

void batch_norm_pair_training(CudaContext& context, const NormTerm& a, const NormTerm& b, Out y, Out mask) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype(), "batch_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const T *in_a = a.x.data<T>(), *in_b = b.x.data<T>();
    T* out = y.data<T>();
    const auto run = [&]<int V>() {
      const ColumnTiling tiling = cuda::norm_tiling(y, V),
                         writers = cuda::norm_writer_tiling(context, tiling, V);
      const auto memory = [&](const NormTerm& norm) {
        return context.scratch(norm.sums.defined() ? 0 : cuda::summed_elements(tiling) * sizeof(A));
      };
      const Scratch of_a = memory(a), of_b = memory(b);
      const auto summed_b = cuda::find_sums<V>(context, in_b, b.sums, tiling, of_b.as<A>());
      const auto summed_a = cuda::find_sums<V>(context, in_a, a.sums, tiling, of_a.as<A>());
      cuda::launch(context, {"batch_norm_pair", writers.blocks(), kThreads}, apply<V, T, A>,
                   term_of<T, A>(a, summed_a), term_of<T, A>(b, summed_b), writers, out,
                   data_or_null<std::uint8_t>(mask));
    };
    dispatch_width<T>(y.dim(-1), run, in_a, in_b, out);
  });
}

void batch_norm_pair_backward(CudaContext& context, const NormTerm& a, const NormTerm& b, const Tensor& dy,
                              const Tensor& mask, const NormGradients& to_a, const NormGradients& to_b) {
  if (dy.numel() == 0) return;
  dispatch_floating(dy.dtype(), "batch_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const bool given = to_a.sums.defined();
    const Sources<T> from{a.x.data<T>(), b.x.data<T>(), dy.data<T>(),
                          given ? nullptr : mask.data<std::uint8_t>()};
    const auto run = [&]<int V>() {
      const ColumnTiling tiling = cuda::norm_tiling(dy, V),
                         writers = cuda::norm_writer_tiling(context, tiling, V);
      const std::size_t bytes = given ? 0 : tiling.partial_elements() * sizeof(A);
      const Scratch of_a = context.scratch(bytes), of_b = context.scratch(bytes);
      const A *sums_a = data_or_null<A>(to_a.sums), *sums_b = data_or_null<A>(to_b.sums);
      if (!given) {
        cuda::launch(context, {"batch_norm_pair_sums", tiling.blocks(), kThreads}, sum_gradients<V, T, A>,
                     from, tiling, a.stats.data<A>(), b.stats.data<A>(), of_a.as<A>(), of_b.as<A>());
        sums_a = of_a.as<A>(), sums_b = of_b.as<A>();
      }
      const double share = 1 / static_cast<double>(tiling.rows);
      cuda::launch(context, {"batch_norm_pair_backward", writers.blocks(), kThreads}, write_dx<V, T, A>, from,
                   writers, given ? 1 : tiling.splits, gradient_of<T, A>(a, to_a, sums_a, share),
                   gradient_of<T, A>(b, to_b, sums_b, share));
    };
    dispatch_width<T>(dy.dim(-1), run, from.a, from.b, from.dy, data_or_null<T>(to_a.dx),
                      data_or_null<T>(to_b.dx));
  });
}

}  // namespace athanor::kernels
