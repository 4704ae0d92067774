#include "kernels/copy.h"
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/max_gather.h"
#include "kernels/cuda/max_windows.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

using cuda::Channels;
using cuda::ChannelTile;
using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::dispatch_width;
using cuda::GradientTotals;
using cuda::Target;
using cuda::Vec;

constexpr int kThreads = cuda::kNormThreads;

/// FromOutput, with a bit for each element in the place of y.
template <class Operation> struct FromMask : FromOutput<Operation> {};
template <class Policy> constexpr bool kReadsMask = false;
template <class Op> constexpr bool kReadsMask<FromMask<Op>> = true;
/// Whether dL/d(pre) follows from dy and the extra tensor alone, without x.
template <class Policy> constexpr bool kIgnoresX = false;
template <class Op> constexpr bool kIgnoresX<FromOutput<Op>> = true;
template <class Op> constexpr bool kIgnoresX<FromMask<Op>> = true;
template <> constexpr bool kIgnoresX<FromX<Identity>> = true;

/// Vectors of each tensor that a thread has in flight: one where the activation's derivative, found anew from
/// x, needs the registers. On sm_80, two of three tensors would spill.
template <class Policy> constexpr int kTogether = 2;
template <class Op> constexpr int kTogether<FromOutput<Op>> = cuda::kArchitecture == 80 ? 1 : 2;
template <class Op> constexpr int kTogether<FromX<Op>> = std::is_same_v<Op, Identity> ? 2 : 1;
template <class Op> constexpr int kTogether<FromResidual<Op>> = 1;

// How dy and dx lie in memory: as x does, or as the tensor on the other side of a max pooling.

/// As x does.
template <int V> struct LikeX {
  static constexpr int kBlocks = cuda::kNormBlocks;  ///< that share a multiprocessor

  template <class T> __device__ __forceinline__ Vec<T, V> gradient(const T* dy, std::int64_t here) const {
    return cuda::load<V>(dy + here);
  }
  template <class T>
  __device__ __forceinline__ void put(T* dx, std::int64_t here, const Vec<T, V>& out) const {
    cuda::store<V>(dx + here, out);
  }
};
/// The norm's result is pooled: dy is the gradient of that. kRows: see FewWindowsGather; with all of them a
/// block has a multiprocessor to itself.
template <int kRows, int V> struct ThenPool : LikeX<V> {
  static constexpr int kBlocks = kRows == 1 ? cuda::kNormBlocks : 1;

  cuda::FewWindowsGather<V> gather;
  const std::uint8_t* index;

  ThenPool(const PoolWindows& windows, const Tensor& won, const Tensor& x)
      : gather(windows, x), index(won.data<std::uint8_t>()) {}
  template <class T> __device__ __forceinline__ Vec<T, V> gradient(const T* dy, std::int64_t here) const {
    return gather.template at<kRows>(static_cast<std::uint32_t>(here / V), dy, index);
  }
};
/// The norm's x is a pooled tensor: dx is the gradient of what was pooled.
template <int V> struct AfterPool : LikeX<V> {
  cuda::WindowScatter<V> scatter;
  const std::uint8_t* index;

  AfterPool(const PoolWindows& windows, const Tensor& won, const Tensor& x)
      : scatter(windows, x), index(won.data<std::uint8_t>()) {}
  template <class T>
  __device__ __forceinline__ void put(T* dx, std::int64_t here, const Vec<T, V>& out) const {
    scatter.put(here / V, cuda::load<V>(index + here), out, dx);
  }
};

// What the launchers make them of: `sums` for the pass that sums, `dx` for the one that writes dx.

struct NoPool {
  template <int V> LikeX<V> sums(const Tensor&) const { return {}; }
  template <int V> LikeX<V> dx(const Tensor&) const { return {}; }
  const std::uint8_t* index() const { return nullptr; }
};
struct PoolAfterNorm {
  const PoolWindows& windows;
  const Tensor& won;

  template <int V> ThenPool<kFewWindows, V> sums(const Tensor& x) const { return {windows, won, x}; }
  template <int V> ThenPool<1, V> dx(const Tensor& x) const { return {windows, won, x}; }
  const std::uint8_t* index() const { return won.data<std::uint8_t>(); }
};
struct PoolBeforeNorm {
  const PoolWindows& windows;
  const Tensor& won;

  template <int V> LikeX<V> sums(const Tensor&) const { return {}; }
  template <int V> AfterPool<V> dx(const Tensor& x) const { return {windows, won, x}; }
  const std::uint8_t* index() const { return won.data<std::uint8_t>(); }
};

template <class T> struct GradientSources {
  const T *x, *dy;
  const void* extra;  // null where the policy needs none
  T* dresidual;
};

/// What belongs to the channels of a tile, in shared memory. The sums need the first of them alone if their
/// policy ignores x.
enum Value : std::uint8_t { kMean, kScale, kBeta, kOffset, kSlope };

template <bool kScaled, bool kShifted, class A>
__device__ __forceinline__ void put_parameters(std::int64_t c, int slot, std::int64_t channels,
                                               const Channels<A>& parameters,
                                               A (*values)[cuda::kNormChannels]) {
  values[kMean][slot] = parameters.stats[c];
  if constexpr (kScaled) values[kScale][slot] = parameters.scale_of(c, parameters.stats[channels + c]);
  if constexpr (kShifted) values[kBeta][slot] = parameters.beta_of(c);
}

/// What the policy's gradient needs of element k besides x and dy.
template <class Policy, class T, int V>
__device__ __forceinline__ Accumulate<T> extra_of(const Vec<T, V>& more, unsigned passes, int k) {
  if constexpr (kReadsMask<Policy>) {
    return Accumulate<T>((passes >> k) & 1u);
  } else if constexpr (Policy::kExtra) {
    return cuda::widen(more, k);
  } else {
    return Accumulate<T>(0);
  }
}

/// Sums of g and of g (x - mean), g = dL/d(pre); g is kept in dresidual, and summed as rounded there, where
/// the policy needs extra. Moves 2 * sizeof(T) bytes an element, and where g is kept 4, or 3 with a mask.
template <class Policy, class Layout, int V, class T, class A>
__global__ void __launch_bounds__(kThreads, Layout::kBlocks)
    sum_gradients(GradientSources<T> from, Layout layout, ColumnTiling tiling, Channels<A> parameters,
                  A* partials) {
  __shared__ A shared[V * kThreads];
  __shared__ __align__(16) A values[3][cuda::kNormChannels];
  const auto at = tiling.thread_tile<V, kThreads>(gridDim.x - 1 - blockIdx.x);
  const ChannelTile<V> tile(tiling, at);
  const int i = static_cast<int>(threadIdx.x);
  if (const std::int64_t c = tile.first + i; i < tile.width && c < tiling.channels)
    put_parameters<!kIgnoresX<Policy>, !kIgnoresX<Policy>>(c, tile.slot(i), tiling.channels, parameters,
                                                           values);
  __syncthreads();

  constexpr int E = ChannelTile<V>::kEach;
  A sums[2 * V] = {};
  cuda::for_each_rows<kTogether<Policy>>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()], gradient[n()];
    [[maybe_unused]] Vec<T, V> more[n()] = {}, kept[n()];
    unsigned passes[n()] = {};
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      in[u] = cuda::load<V>(from.x + here + u * at.stride);
      gradient[u] = layout.gradient(from.dy, here + u * at.stride);
      if constexpr (kReadsMask<Policy>) {
        passes[u] = cuda::load_mask<V>(static_cast<const std::uint8_t*>(from.extra), here + u * at.stride);
      } else if constexpr (Policy::kExtra) {
        more[u] = cuda::load<V>(static_cast<const T*>(from.extra) + here + u * at.stride);
      }
    }
    cuda::read_anew();
#pragma unroll
    for (int first = 0; first < V; first += E) {
      const auto mean = tile.load(values[kMean], at.column, first);
      [[maybe_unused]] Vec<A, E> scale{}, beta{};
      if constexpr (!kIgnoresX<Policy>) {
        scale = tile.load(values[kScale], at.column, first);
        beta = tile.load(values[kBeta], at.column, first);
      }
#pragma unroll
      for (int u = 0; u < n(); ++u) {
#pragma unroll
        for (int j = 0; j < E; ++j) {
          const int k = first + j;
          const A d = cuda::widen(in[u], k) - mean[j];
          const A extra = extra_of<Policy>(more[u], passes[u], k);
          A g = Policy::gradient(cuda::widen(gradient[u], k), d, scale[j], beta[j], extra);
          if constexpr (Policy::kExtra) g = A(kept[u][k] = T(g));
          sums[k] += g;
          sums[V + k] = std::fma(g, d, sums[V + k]);
        }
      }
    }
    if constexpr (Policy::kExtra) {
#pragma unroll
      for (int u = 0; u < n(); ++u) cuda::store<V>(from.dresidual + here + u * at.stride, kept[u]);
    }
  });
  cuda::write_partials<V, 2, kThreads>(tiling, at, sums, shared, partials);
}

/// The parameters' gradients, and the row of batch_norm_backward_sums() if there is one.
template <class A>
__global__ void __launch_bounds__(1024)
    finish_sums(const A* partials, std::int64_t splits, std::int64_t rows, std::int64_t channels,
                GradientTotals<A> totals, double* row) {
  const auto total = cuda::total_columns(partials, splits, channels);
  if (!total.valid) return;
  const std::int64_t c = total.channel;
  totals.put(c, total.first, total.second);
  if (!row) return;
  if (c == 0) row[0] = static_cast<double>(rows);
  row[1 + c] = total.first;
  row[1 + channels + c] = total.second;
}

/// Offset and slope of each channel from the rows of all ranks.
template <class A>
__global__ void __launch_bounds__(cuda::kColumnThreads)
    join_gradients(const double* rows, std::int64_t ranks, std::int64_t channels, const A* inverses,
                   A* coefficients) {
  const std::int64_t c = std::int64_t{blockIdx.x} * cuda::kColumnThreads + threadIdx.x;
  if (c >= channels) return;
  const JoinedSums sums = joined_sums(rows, ranks, channels, c);
  const double inverse = static_cast<double>(inverses[c]);
  coefficients[c] = A(sums.first / sums.n);
  coefficients[channels + c] = A(sums.second * inverse * inverse / sums.n);
}

/// Where dx gets offset and slope of a channel: partial sums of `splits`, or, where there are none, from
/// memory.
template <class A> struct Coefficients {
  const A *partials, *given;
  std::int64_t splits;
};

/// What write_dx needs of a tile's channels, in shared memory. Where it follows from sums, the first block of
/// a tile also writes the parameters' gradients.
template <class Policy, int V, class A>
__device__ __forceinline__ void prepare_dx(const ChannelTile<V>& tile, const ColumnTiling& tiling,
                                           bool writes, const Channels<A>& parameters,
                                           const Coefficients<A>& coefficients,
                                           const GradientTotals<A>& totals,
                                           A (*values)[cuda::kNormChannels]) {
  const double* found = coefficients.partials ? cuda::total_tile(tile, coefficients.partials,
                                                                 coefficients.splits, tiling.channels)
                                              : nullptr;
  const int i = static_cast<int>(threadIdx.x);
  if (const std::int64_t c = tile.first + i; i < tile.width && c < tiling.channels) {
    const int slot = tile.slot(i);
    put_parameters<true, !kIgnoresX<Policy>>(c, slot, tiling.channels, parameters, values);
    if (found) {
      const double first = found[i], second = found[tile.width + i];
      values[kOffset][slot] = totals.offset(first);
      values[kSlope][slot] = totals.slope(c, second);
      if (writes) totals.put(c, first, second);
    } else {
      values[kOffset][slot] = coefficients.given[c];
      values[kSlope][slot] = coefficients.given[tiling.channels + c];
    }
  }
  __syncthreads();
}

/// dx of a block's tile from dL/d(pre) (policy FromX<Identity>) or dy: 3 * sizeof(T) bytes an element. From
/// partial sums, the first block of a tile also writes the parameters' gradients.
template <class Policy, class Layout, int V, class T, class A>
__global__ void __launch_bounds__(kThreads, Layout::kBlocks)
    write_dx(const T* __restrict__ x, const T* __restrict__ dy, Layout layout, ColumnTiling tiling,
             Channels<A> parameters, Coefficients<A> coefficients, GradientTotals<A> totals,
             T* __restrict__ dx) {
  __shared__ __align__(16) A values[5][cuda::kNormChannels];
  const auto at = tiling.thread_tile<V, kThreads>();
  const ChannelTile<V> tile(tiling, at);
  prepare_dx<Policy>(tile, tiling, at.split == 0, parameters, coefficients, totals, values);

  constexpr int E = ChannelTile<V>::kEach;
  cuda::for_each_rows<kTogether<Policy>>(at, [&](std::int64_t here, auto n) {
    Vec<T, V> in[n()], gradient[n()], out[n()];
#pragma unroll
    for (int u = 0; u < n(); ++u) {
      in[u] = cuda::load<V>(x + here + u * at.stride);
      gradient[u] = layout.gradient(dy, here + u * at.stride);
    }
    cuda::read_anew();
#pragma unroll
    for (int first = 0; first < V; first += E) {
      const auto mean = tile.load(values[kMean], at.column, first),
                 scale = tile.load(values[kScale], at.column, first);
      [[maybe_unused]] Vec<A, E> beta{};
      if constexpr (!kIgnoresX<Policy>) beta = tile.load(values[kBeta], at.column, first);
      A d[n()][E], g[n()][E];
#pragma unroll
      for (int u = 0; u < n(); ++u) {
#pragma unroll
        for (int j = 0; j < E; ++j) {
          d[u][j] = cuda::widen(in[u], first + j) - mean[j];
          g[u][j] = Policy::gradient(cuda::widen(gradient[u], first + j), d[u][j], scale[j], beta[j], A(0));
        }
      }
      if constexpr (kTogether<Policy> == 1) cuda::read_anew();  // not while beta still needs registers
      const auto offset = tile.load(values[kOffset], at.column, first),
                 slope = tile.load(values[kSlope], at.column, first);
#pragma unroll
      for (int u = 0; u < n(); ++u) {
#pragma unroll
        for (int j = 0; j < E; ++j)
          out[u][first + j] = T(batch_norm_dx(g[u][j], d[u][j], scale[j], slope[j], offset[j]));
      }
    }
#pragma unroll
    for (int u = 0; u < n(); ++u) layout.put(dx, here + u * at.stride, out[u]);
  });
}

/// The two passes over a batch, and the tensors they go over.
template <class Sum, class Dx, class T, class Pool = NoPool> struct Backward {
  using A = Accumulate<T>;

  Backward(const CudaContext& on, const BatchNormBackward& arguments, const Pool& beside = {})
      : context(on),
        args(arguments),
        pool(beside),
        from{args.x.data<T>(), args.dy.data<T>(), args.extra.defined() ? args.extra.raw_data() : nullptr,
             data_or_null<T>(args.dresidual)},
        dx(data_or_null<T>(args.dx)),
        parameters(args.stats, args.gamma, args.beta),
        rows(args.x.numel() / args.x.dim(-1)),
        totals{parameters.stats + args.x.dim(-1),
               args.training && rows > 0 ? 1 / static_cast<double>(rows) : 0, Target<A>(args.dgamma),
               Target<A>(args.dbeta), args.sums.defined()} {}

  /// f<V>(tiling)
  template <class F> void with_width(const F& f) const {
    const T* extra = kReadsMask<Sum> ? nullptr : static_cast<const T*>(from.extra);
    const auto run = [&]<int V>() { f.template operator()<V>(cuda::norm_tiling(args.x, V)); };
    dispatch_width<T>(args.x.dim(-1), run, from.x, from.dy, extra, from.dresidual, dx, pool.index());
  }
  template <int V> void launch_sums(const ColumnTiling& tiling, A* partials) const {
    const auto layout = pool.template sums<V>(args.x);
    cuda::launch(context, {"batch_norm_sums", tiling.blocks(), kThreads},
                 sum_gradients<Sum, std::decay_t<decltype(layout)>, V, T, A>, from, layout, tiling,
                 parameters, partials);
  }
  template <int V> void launch_dx(const ColumnTiling& summed, const Coefficients<A>& coefficients) const {
    const ColumnTiling tiling = cuda::norm_writer_tiling(context, summed, V);
    if (tiling.rows == 0) return;
    const auto layout = pool.template dx<V>(args.x);
    cuda::launch(context, {"batch_norm_backward", tiling.blocks(), kThreads},
                 write_dx<Dx, std::decay_t<decltype(layout)>, V, T, A>, from.x,
                 from.dresidual ? from.dresidual : from.dy, layout, tiling, parameters, coefficients, totals,
                 dx);
  }

  /// The sums, if they are not there, then dx; or, for several ranks or without dx, the parameters'
  /// gradients, and a row if not null.
  void run(double* row) const {
    with_width([this, row]<int V>(const ColumnTiling& tiling) {
      const A* const given = data_or_null<A>(args.sums);
      const Scratch memory = context.scratch(given ? 0 : tiling.partial_elements() * sizeof(A));
      const A* const partials = given ? given : memory.as<A>();
      const std::int64_t splits = given ? 1 : tiling.splits;
      if (!given && rows > 0) launch_sums<V>(tiling, memory.as<A>());
      if (!row && dx && rows > 0) return launch_dx<V>(tiling, {partials, nullptr, splits});
      cuda::launch(context, cuda::total_launch("batch_norm_finish", splits, tiling.channels), finish_sums<A>,
                   partials, splits, tiling.rows, tiling.channels, totals, row);
    });
  }
  void join(const double* joined, std::int64_t ranks) const {
    if (!dx) return;
    with_width([this, joined, ranks]<int V>(const ColumnTiling& tiling) {
      const Scratch memory = context.scratch(2 * static_cast<std::size_t>(tiling.channels) * sizeof(A));
      cuda::launch(context, cuda::by_channel("batch_norm_join", tiling.channels), join_gradients<A>, joined,
                   ranks, tiling.channels, totals.inverses, memory.as<A>());
      launch_dx<V>(tiling, {nullptr, memory.as<A>(), 0});
    });
  }

  const CudaContext& context;
  const BatchNormBackward& args;
  Pool pool;
  GradientSources<T> from;
  T* dx;
  Channels<A> parameters;
  std::int64_t rows;
  GradientTotals<A> totals;
};

/// f(Backward) with the policies that have g = dL/d(pre).
template <class F> void with_passes(const CudaContext& context, const BatchNormBackward& args, const F& f) {
  if (args.x.dim(-1) == 0) return;
  dispatch_floating(args.x.dtype(), "batch_norm", [&]<class T>() {
    cuda::dispatch_activation<T>(args.activation, [&]<class Op>() {
      if (!args.extra.defined()) return f(Backward<FromX<Op>, FromX<Op>, T>(context, args));
      if constexpr (std::is_same_v<Op, Relu>) {
        if (args.extra.dtype() == DType::u8)
          return f(Backward<FromMask<Op>, FromX<Identity>, T>(context, args));
      }
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

void batch_norm_backward(CudaContext& context, const BatchNormBackward& args) {
  with_passes(context, args, [](const auto& passes) { passes.run(nullptr); });
}

void batch_norm_max_pool_backward(CudaContext& context, const BatchNormBackward& args,
                                  const PoolWindows& windows, const Tensor& index) {
  if (args.x.numel() == 0) return;
  dispatch_floating(args.x.dtype(), "batch_norm", [&]<class T>() {
    using Policy = FromX<Relu>;
    Backward<Policy, Policy, T, PoolAfterNorm>(context, args, {windows, index}).run(nullptr);
  });
}

void max_pool_batch_norm_backward(CudaContext& context, const PoolWindows& windows, const Tensor& index,
                                  const BatchNormBackward& args) {
  if (args.x.numel() == 0) return;
  dispatch_floating(args.x.dtype(), "batch_norm", [&]<class T>() {
    cuda::dispatch_activation<T>(args.activation, [&]<class Op>() {
      using Policy = FromX<Op>;
      Backward<Policy, Policy, T, PoolBeforeNorm>(context, args, {windows, index}).run(nullptr);
    });
  });
}

void batch_norm_backward_sums(CudaContext& context, const BatchNormBackward& args, Out row) {
  if (args.x.dim(-1) == 0) return fill(context, row, 0);
  with_passes(context, args, [&](const auto& passes) { passes.run(row.data<double>()); });
}

void batch_norm_backward_join(CudaContext& context, const BatchNormBackward& args, const Tensor& rows) {
  with_passes(context, args, [&](const auto& passes) { passes.join(rows.data<double>(), rows.dim(0)); });
}

}  // namespace athanor::kernels
