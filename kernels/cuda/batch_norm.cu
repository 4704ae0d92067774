#include "kernels/copy.h"
#include "kernels/cuda/norm.h"
#include "kernels/norm_ops.h"

// x is [R, C] in memory and C lies side by side, so a thread keeps its channels and walks down the rows: what
// belongs to a channel stays in its registers. See kernels/cuda/columns.h for how sums are made.

namespace athanor::kernels {
namespace {

using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::dispatch_width;
using cuda::Target;
using cuda::Vec;

constexpr int kThreads = cuda::kColumnThreads;

/// Vectors a thread has in flight: fewer where it reads several tensors.
constexpr int kOne = 4, kSeveral = 2;

// Forward --------------------------------------------------------------------------------------------------

/// Per-channel operands in memory.
template <class A> struct Channels {
  const A *stats, *gamma, *beta;  // gamma, beta null: 1 and 0

  Channels(const Tensor& s, const Tensor& g, const Tensor& b)
      : stats(s.data<A>()), gamma(data_or_null<A>(g)), beta(data_or_null<A>(b)) {}
};

/// What is subtracted, multiplied and added in V channels of one thread.
template <int V, class A> struct Affine {
  A mean[V], scale[V], beta[V];

  __device__ __forceinline__ Affine(const Channels<A>& from, std::int64_t channels,
                                    const ColumnTiling::ThreadTile& at) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const std::int64_t c = at.inside ? at.channel + k : 0;
      const A inverse = from.stats[channels + c];
      mean[k] = from.stats[c];
      scale[k] = from.gamma ? inverse * from.gamma[c] : inverse;
      beta[k] = from.beta ? from.beta[c] : A(0);
    }
  }
};

/// y of a block's tile: 2 * sizeof(T) bytes (3 with a residual) and 3 FLOPs an element, and the activation's.
template <class Op, bool kResidual, int V, class T, class A>
__global__ void __launch_bounds__(kThreads)
    apply(const T* __restrict__ x, const T* __restrict__ residual, ColumnTiling tiling,
          Channels<A> parameters, T* __restrict__ y) {
  const auto at = tiling.thread_tile<V>();
  const Affine<V, A> affine(parameters, tiling.channels, at);
  cuda::for_each_rows<kResidual ? kSeveral : kOne>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()];
    [[maybe_unused]] Vec<T, V> plus[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      in[u] = cuda::load<V>(x + here + u * at.stride);
      if constexpr (kResidual) plus[u] = cuda::load<V>(residual + here + u * at.stride);
    }
#pragma unroll
    for (int u = 0; u < n(); ++u) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        A pre = std::fma(A(in[u][k]) - affine.mean[k], affine.scale[k], affine.beta[k]);
        if constexpr (kResidual) pre += A(plus[u][k]);
        in[u][k] = T(Op::forward(pre));
      }
      cuda::store<V>(y + here + u * at.stride, in[u]);
    }
  });
}

}  // namespace

template <>
void batch_norm_forward(CudaContext& context, Activation activation, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, const Tensor& stats, const Tensor& residual, const Tensor& y) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const T *in = x.data<T>(), *plus = data_or_null<T>(residual);
    T* out = y.data<T>();
    const Channels<A> parameters(stats, gamma, beta);
    dispatch_activation(activation, [&]<class Op>() {
      const auto run = [&]<int V>() {
        const ColumnTiling tiling = cuda::tiling_of(x, V);
        cuda::launch(context, {"batch_norm", tiling.blocks(), kThreads},
                     plus ? apply<Op, true, V, T, A> : apply<Op, false, V, T, A>, in, plus, tiling,
                     parameters, out);
      };
      dispatch_width<T>(x.dim(-1), run, in, plus, out);
    });
  });
}

// Backward -------------------------------------------------------------------------------------------------

namespace {

template <class T> struct GradientSources {
  const T *x, *dy, *extra;  // extra null where the policy needs none
  T* dresidual;
};

/// Sums of g and of g (x - mean), g = dL/d(pre); g is kept in dresidual, and summed as rounded there, where
/// the policy needs extra. Moves 2 * sizeof(T) bytes an element, 4 where g is kept.
template <class Policy, int V, class T, class A>
__global__ void __launch_bounds__(kThreads)
    sum_gradients(GradientSources<T> from, ColumnTiling tiling, Channels<A> parameters, A* partials) {
  __shared__ A shared[V * kThreads];
  const auto at = tiling.thread_tile<V>();
  const Affine<V, A> affine(parameters, tiling.channels, at);
  A sums[2 * V] = {};
  cuda::for_each_rows<kSeveral>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()], gradient[n()];
    [[maybe_unused]] Vec<T, V> more[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      in[u] = cuda::load<V>(from.x + here + u * at.stride);
      gradient[u] = cuda::load<V>(from.dy + here + u * at.stride);
      if constexpr (Policy::kExtra) more[u] = cuda::load<V>(from.extra + here + u * at.stride);
    }
#pragma unroll
    for (int u = 0; u < n(); ++u) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A d = A(in[u][k]) - affine.mean[k];
        A extra(0);
        if constexpr (Policy::kExtra) extra = A(more[u][k]);
        A g = Policy::gradient(A(gradient[u][k]), d, affine.scale[k], affine.beta[k], extra);
        if constexpr (Policy::kExtra) g = A(more[u][k] = T(g));
        sums[k] += g;
        sums[V + k] = std::fma(g, d, sums[V + k]);
      }
      if constexpr (Policy::kExtra) cuda::store<V>(from.dresidual + here + u * at.stride, more[u]);
    }
  });
  cuda::write_partials<V>(tiling, at, sums, shared, partials);
}

/// The parameters' gradients, and what dx needs: offset and slope of each channel.
template <class A>
__global__ void __launch_bounds__(1024)
    finish_gradients(const A* partials, std::int64_t splits, std::int64_t channels, const A* inverses,
                     double share, Target<A> dgamma, Target<A> dbeta, A* coefficients) {
  const auto total = cuda::total_columns(partials, splits, channels);
  if (!total.valid) return;
  const double inverse = static_cast<double>(inverses[total.channel]), product = total.second * inverse;
  dgamma.put(total.channel, product);
  dbeta.put(total.channel, total.first);
  coefficients[total.channel] = A(batch_norm_mean(total.first, share));
  coefficients[channels + total.channel] = A(batch_norm_mean(product * inverse, share));
}

/// The parameters' gradients, and the row of batch_norm_backward_sums().
template <class A>
__global__ void __launch_bounds__(1024)
    finish_sums(const A* partials, std::int64_t splits, std::int64_t rows, std::int64_t channels,
                const A* inverses, Target<A> dgamma, Target<A> dbeta, double* row) {
  const auto total = cuda::total_columns(partials, splits, channels);
  if (!total.valid) return;
  const std::int64_t c = total.channel;
  dgamma.put(c, total.second * static_cast<double>(inverses[c]));
  dbeta.put(c, total.first);
  if (c == 0) row[0] = static_cast<double>(rows);
  row[1 + c] = total.first;
  row[1 + channels + c] = total.second;
}

/// Offset and slope of each channel from the rows of all ranks.
template <class A>
__global__ void __launch_bounds__(kThreads)
    join_gradients(const double* rows, std::int64_t ranks, std::int64_t channels, const A* inverses,
                   A* coefficients) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= channels) return;
  const JoinedSums sums = joined_sums(rows, ranks, channels, c);
  const double inverse = static_cast<double>(inverses[c]);
  coefficients[c] = A(sums.first / sums.n);
  coefficients[channels + c] = A(sums.second * inverse * inverse / sums.n);
}

/// dx of a block's tile from dL/d(pre) (policy FromX<Identity>) or dy: 3 * sizeof(T) bytes an element.
template <class Policy, int V, class T, class A>
__global__ void __launch_bounds__(kThreads)
    write_dx(const T* __restrict__ x, const T* __restrict__ dy, ColumnTiling tiling, Channels<A> parameters,
             const A* __restrict__ coefficients, T* __restrict__ dx) {
  const auto at = tiling.thread_tile<V>();
  const Affine<V, A> affine(parameters, tiling.channels, at);
  A offset[V], slope[V];
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const std::int64_t c = at.inside ? at.channel + k : 0;
    offset[k] = coefficients[c];
    slope[k] = coefficients[tiling.channels + c];
  }
  cuda::for_each_rows<kSeveral>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()], gradient[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      in[u] = cuda::load<V>(x + here + u * at.stride);
      gradient[u] = cuda::load<V>(dy + here + u * at.stride);
    }
#pragma unroll
    for (int u = 0; u < n(); ++u) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A d = A(in[u][k]) - affine.mean[k];
        const A g = Policy::gradient(A(gradient[u][k]), d, affine.scale[k], affine.beta[k], A(0));
        gradient[u][k] = T(batch_norm_dx(g, d, affine.scale[k], slope[k], offset[k]));
      }
      cuda::store<V>(dx + here + u * at.stride, gradient[u]);
    }
  });
}

/// The two passes over a batch, and the tensors they go over.
template <class Sum, class Dx, class T> struct Backward {
  using A = Accumulate<T>;

  Backward(const CudaContext& on, const BatchNormBackward& arguments)
      : context(on),
        args(arguments),
        from{args.x.data<T>(), args.dy.data<T>(), data_or_null<T>(args.extra),
             data_or_null<T>(args.dresidual)},
        dx(data_or_null<T>(args.dx)),
        parameters(args.stats, args.gamma, args.beta),
        inverses(parameters.stats + args.x.dim(-1)) {}

  /// f<V>(tiling)
  template <class F> void with_width(const F& f) const {
    const auto run = [&]<int V>() { f.template operator()<V>(cuda::tiling_of(args.x, V)); };
    dispatch_width<T>(args.x.dim(-1), run, from.x, from.dy, from.extra, from.dresidual, dx);
  }
  template <int V> void launch_sums(const ColumnTiling& tiling, A* partials) const {
    cuda::launch(context, {"batch_norm_sums", tiling.blocks(), kThreads}, sum_gradients<Sum, V, T, A>, from,
                 tiling, parameters, partials);
  }
  template <int V> void launch_dx(const ColumnTiling& tiling, const A* coefficients) const {
    cuda::launch(context, {"batch_norm_backward", tiling.blocks(), kThreads}, write_dx<Dx, V, T, A>, from.x,
                 from.dresidual ? from.dresidual : from.dy, tiling, parameters, coefficients, dx);
  }

  /// Both, for one rank.
  void alone() const {
    with_width([this]<int V>(const ColumnTiling& tiling) {
      const std::int64_t channels = tiling.channels;
      const Scratch memory =
          context.scratch((tiling.partial_elements() + 2 * static_cast<std::size_t>(channels)) * sizeof(A));
      A *partials = memory.as<A>(), *coefficients = partials + tiling.partial_elements();
      launch_sums<V>(tiling, partials);
      const double share = args.training && tiling.rows > 0 ? 1 / static_cast<double>(tiling.rows) : 0;
      cuda::launch(context, cuda::total_launch("batch_norm_finish", tiling.splits, channels),
                   finish_gradients<A>, partials, tiling.splits, channels, inverses, share,
                   Target<A>(args.dgamma), Target<A>(args.dbeta), coefficients);
      if (dx) launch_dx<V>(tiling, coefficients);
    });
  }
  void sums(double* row) const {
    with_width([this, row]<int V>(const ColumnTiling& tiling) {
      const Scratch memory = context.scratch(tiling.partial_elements() * sizeof(A));
      launch_sums<V>(tiling, memory.as<A>());
      cuda::launch(context, cuda::total_launch("batch_norm_finish", tiling.splits, tiling.channels),
                   finish_sums<A>, memory.as<A>(), tiling.splits, tiling.rows, tiling.channels, inverses,
                   Target<A>(args.dgamma), Target<A>(args.dbeta), row);
    });
  }
  void join(const double* rows, std::int64_t ranks) const {
    if (!dx) return;
    with_width([this, rows, ranks]<int V>(const ColumnTiling& tiling) {
      const Scratch memory = context.scratch(2 * static_cast<std::size_t>(tiling.channels) * sizeof(A));
      cuda::launch(context, cuda::by_channel("batch_norm_join", tiling.channels), join_gradients<A>, rows,
                   ranks, tiling.channels, inverses, memory.as<A>());
      launch_dx<V>(tiling, memory.as<A>());
    });
  }

  const CudaContext& context;
  const BatchNormBackward& args;
  GradientSources<T> from;
  T* dx;
  Channels<A> parameters;
  const A* inverses;
};

/// f(Backward) with the policies that have g = dL/d(pre).
template <class F> void with_passes(const CudaContext& context, const BatchNormBackward& args, const F& f) {
  if (args.x.dim(-1) == 0) return;
  dispatch_floating(args.x.dtype(), "batch_norm", [&]<class T>() {
    dispatch_activation(args.activation, [&]<class Op>() {
      if (!args.extra.defined()) return f(Backward<FromX<Op>, FromX<Op>, T>(context, args));
      if constexpr (std::is_same_v<Op, Identity>) {
      } else if constexpr (Op::kFromOutput) {
        f(Backward<FromOutput<Op>, FromX<Identity>, T>(context, args));
      } else {
        f(Backward<FromResidual<Op>, FromX<Identity>, T>(context, args));
      }
    });
  });
}

}  // namespace

template <> void batch_norm_backward(CudaContext& context, const BatchNormBackward& args) {
  with_passes(context, args, [](const auto& passes) { passes.alone(); });
}

template <>
void batch_norm_backward_sums(CudaContext& context, const BatchNormBackward& args, const Tensor& row) {
  if (args.x.dim(-1) == 0) return fill(context, row, 0);
  with_passes(context, args, [&](const auto& passes) { passes.sums(row.data<double>()); });
}

template <>
void batch_norm_backward_join(CudaContext& context, const BatchNormBackward& args, const Tensor& rows) {
  with_passes(context, args, [&](const auto& passes) { passes.join(rows.data<double>(), rows.dim(0)); });
}

}  // namespace athanor::kernels
