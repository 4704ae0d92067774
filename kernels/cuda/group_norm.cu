#include "kernels/cuda/architecture.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/norm.h"
#include "kernels/norm_ops.h"
#include "kernels/scratch.h"

// Threads keep their channels over many pixels of an image, as in batch norm; a warp then joins what the
// channels of a group have. Grids are blocks of a tiling by images.

namespace athanor::kernels {
namespace {

using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::kWarp;

constexpr int kThreads = cuda::kColumnThreads;
constexpr int kTogether = cuda::kIsBlackwell ? 1 : 4;  // vectors a thread has in flight
/// Blocks that write dx and share a multiprocessor: as many as their registers allow.
template <int V, class T>
constexpr int kWriters = std::is_same_v<T, double>                                   ? 1
                         : cuda::kIsBlackwell || (V == 8 && std::is_same_v<T, Half>) ? 2
                                                                                     : 3;

/// Two values of the group of each of a thread's channels, of pairs [N, G, 2]; or the first alone, where the
/// second is still to be found.
template <int V, class A> struct GroupPair {
  A first[V], second[V];

  __device__ __forceinline__ GroupPair(const A* pairs, const ChannelGroups& z, std::int64_t image,
                                       std::int64_t channel, bool both = true) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (channel + k >= z.channels) continue;
      const A* of = pairs + 2 * (image * z.groups + (channel + k) / z.width);
      first[k] = of[0];
      if (both) second[k] = of[1];
    }
  }
  __device__ __forceinline__ A normalized(A x, int k) const {
    return (x - first[k]) * second[k];
  }
};

// What is summed over the pixels of an image: called with the image and a thread's channel, then with an
// element and the sums, V of each kind.

template <int V, class T, class A> struct Values {
  static constexpr int kSums = 1;
  const T* x;

  __device__ __forceinline__ auto at(const ChannelGroups&, std::int64_t, std::int64_t) const {
    return [x = x](std::int64_t element, A(&sums)[V]) {
      const auto in = cuda::load<V>(x + element);
#pragma unroll
      for (int k = 0; k < V; ++k) sums[k] += cuda::widen(in, k);
    };
  }
};

template <int V, class T, class A> struct Squares {
  static constexpr int kSums = 1;
  const T* x;
  const A* stats;

  __device__ __forceinline__ auto at(const ChannelGroups& z, std::int64_t image, std::int64_t channel) const {
    return [x = x, of = GroupPair<V, A>(stats, z, image, channel, false)](std::int64_t element, A(&sums)[V]) {
      const auto in = cuda::load<V>(x + element);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A d = cuda::widen(in, k) - of.first[k];
        sums[k] = std::fma(d, d, sums[k]);
      }
    };
  }
};

/// dy, and dy times the normalised value.
template <int V, class T, class A> struct Gradients {
  static constexpr int kSums = 2;
  const T *x, *dy;
  const A* stats;

  __device__ __forceinline__ auto at(const ChannelGroups& z, std::int64_t image, std::int64_t channel) const {
    return [x = x, dy = dy, of = GroupPair<V, A>(stats, z, image, channel)](std::int64_t element,
                                                                            A(&sums)[2 * V]) {
      const auto in = cuda::load<V>(x + element), gradient = cuda::load<V>(dy + element);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A g = cuda::widen(gradient, k);
        sums[k] += g;
        sums[V + k] = std::fma(g, of.normalized(cuda::widen(in, k), k), sums[V + k]);
      }
    };
  }
};

/// Sums of every channel over the pixels of each image: partials [N, splits, kSums, C]. Reads sizeof(T) bytes
/// an element of each operand, 1 to 5 FLOPs.
template <int V, class A, class Summed>
__global__ void __launch_bounds__(kThreads)
    sum_channels(Summed summed, ChannelGroups z, ColumnTiling tiling, A* partials) {
  constexpr int kSums = Summed::kSums;
  __shared__ A shared[kThreads / 2 * kSums * V];
  const auto at = tiling.thread_tile<V>();
  for (std::int64_t image = blockIdx.y; image < z.images; image += gridDim.y) {
    const auto add = summed.at(z, image, at.channel);
    const std::int64_t start = image * z.pixels * z.channels;
    A sums[kSums * V] = {};
    cuda::for_each_rows<kTogether>(at, [&](std::int64_t here, auto n) {
#pragma unroll
      for (int u = 0; u < n(); ++u) add(start + here + u * at.stride, sums);
    });
    cuda::write_partials<V, kSums>(tiling, at, sums, shared,
                                   partials + image * tiling.splits * kSums * z.channels);
  }
}

/// Joins partials [N, splits, kSums, C], a warp for each group of an image: put(group, means) has the means
/// over the group's values, weighed by channel.
template <int kSums, class A, class Put>
__global__ void __launch_bounds__(kThreads)
    finish_groups(const A* partials, std::int64_t splits, ChannelGroups z, const A* weights, Put put) {
  using Row = cuda::RowShape<kWarp, 0, 1>;
  for (std::int64_t group = Row::first(); group < z.images * z.groups; group += Row::step()) {
    const std::int64_t image = group / z.groups, first = group % z.groups * z.width;
    double sums[kSums] = {};
    for (std::int64_t i = Row::rank(); i < splits * z.width; i += kWarp) {
      const std::int64_t channel = first + i % z.width, row = (image * splits + i / z.width) * kSums;
      const double weight = weights ? static_cast<double>(weights[channel]) : 1;
#pragma unroll
      for (int k = 0; k < kSums; ++k)
        sums[k] += weight * static_cast<double>(partials[(row + k) * z.channels + channel]);
    }
#pragma unroll
    for (int k = 0; k < kSums; ++k) sums[k] = cuda::group_sum<kWarp>(sums[k]) / z.count();
    if (Row::rank() == 0) put(group, sums);
  }
}

template <class A> struct PutMean {
  A* stats;
  __device__ __forceinline__ void operator()(std::int64_t group, const double (&mean)[1]) const {
    stats[2 * group] = A(mean[0]);
  }
};
template <class A> struct PutInverse {
  A* stats;
  double eps;
  __device__ __forceinline__ void operator()(std::int64_t group, const double (&var)[1]) const {
    stats[2 * group + 1] = A(inverse_deviation(var[0], eps));
  }
};
template <class A> struct PutMeans {
  A* means;
  __device__ __forceinline__ void operator()(std::int64_t group, const double (&mean)[2]) const {
    means[2 * group] = A(mean[0]), means[2 * group + 1] = A(mean[1]);
  }
};

/// gamma or beta of a thread's channels; null: `otherwise`.
template <int V, class A> struct Parameters {
  A value[V];

  __device__ __forceinline__ Parameters(const A* from, std::int64_t channel, std::int64_t channels,
                                        A otherwise) {
#pragma unroll
    for (int k = 0; k < V; ++k) value[k] = from && channel + k < channels ? from[channel + k] : otherwise;
  }
};

/// 2 sizeof(T) bytes and 4 FLOPs an element.
template <int V, class T, class A>
__global__ void __launch_bounds__(kThreads)
    normalize(const T* __restrict__ x, const A* gamma, const A* beta, const A* stats, ChannelGroups z,
              ColumnTiling tiling, T* __restrict__ y) {
  const auto at = tiling.thread_tile<V>();
  const Parameters<V, A> scale(gamma, at.channel, z.channels, A(1)),
      shift(beta, at.channel, z.channels, A(0));
  for (std::int64_t image = blockIdx.y; image < z.images; image += gridDim.y) {
    const GroupPair<V, A> of(stats, z, image, at.channel);
    const std::int64_t start = image * z.pixels * z.channels;
    cuda::for_each_rows<1>(at, [&](std::int64_t here, auto) {
      auto in = cuda::load<V>(x + start + here);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A normalized = of.normalized(cuda::widen(in, k), k);
        in[k] = T(std::fma(normalized, scale.value[k], shift.value[k]));
      }
      cuda::store<V>(y + start + here, in);
    });
  }
}

/// 3 sizeof(T) bytes and 8 FLOPs an element.
template <int V, class T, class A>
__global__ void __launch_bounds__(kThreads, kWriters<V, T>)
    write_dx(const T* __restrict__ x, const T* __restrict__ dy, const A* gamma, const A* stats,
             const A* means, ChannelGroups z, ColumnTiling tiling, T* __restrict__ dx) {
  const auto at = tiling.thread_tile<V>();
  const Parameters<V, A> scale(gamma, at.channel, z.channels, A(1));
  for (std::int64_t image = blockIdx.y; image < z.images; image += gridDim.y) {
    const GroupPair<V, A> of(stats, z, image, at.channel), mean(means, z, image, at.channel);
    const std::int64_t start = image * z.pixels * z.channels;
    cuda::for_each_rows<1>(at, [&](std::int64_t here, auto) {
      auto in = cuda::load<V>(x + start + here);
      const auto gradient = cuda::load<V>(dy + start + here);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A g = cuda::widen(gradient, k) * scale.value[k],
                normalized = of.normalized(cuda::widen(in, k), k);
        in[k] = T(layer_norm_dx(g, normalized, of.second[k], mean.first[k], mean.second[k]));
      }
      cuda::store<V>(dx + start + here, in);
    });
  }
}

/// How the kernels of one call are launched, with channels V at a time.
struct Grid {
  ChannelGroups z;
  ColumnTiling tiling;
  dim3 blocks;

  Grid(const ChannelGroups& sizes, int V)
      : z(sizes),
        tiling(cuda::group_norm_cut(z, V)),
        blocks(tiling.blocks(), static_cast<unsigned>(std::min<std::int64_t>(z.images, 65535))) {}

  template <class A> std::size_t partial_bytes(int sums) const {
    return static_cast<std::size_t>(z.images * tiling.splits * sums * z.channels) * sizeof(A);
  }
  /// Calls put with the means of what is summed, for every group.
  template <int V, class A, class Summed, class Put>
  void join(const CudaContext& context, const Summed& summed, const A* weights, A* partials,
            const Put& put) const {
    cuda::launch(context, {"group_norm_sums", blocks, dim3(kThreads)}, sum_channels<V, A, Summed>, summed, z,
                 tiling, partials);
    using Row = cuda::RowShape<kWarp, 0, 1>;
    cuda::launch(
        context,
        {"group_norm_finish", dim3(cuda::row_blocks<Row>(context, z.images * z.groups)), dim3(kThreads)},
        finish_groups<Summed::kSums, A, Put>, partials, tiling.splits, z, weights, put);
  }
};

}  // namespace

void group_norm_forward(CudaContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double eps, Out stats, Out y) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "group_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const T* in = x.data<T>();
    T* out = y.data<T>();
    A* kept = stats.data<A>();
    const A *weight = data_or_null<A>(gamma), *none = nullptr;
    cuda::dispatch_width<T>(
        x.dim(-1),
        [&]<int V>() {
          const Grid grid(ChannelGroups(x, stats), V);
          const Scratch partials = context.scratch(grid.partial_bytes<A>(1));
          grid.join<V>(context, Values<V, T, A>{in}, none, partials.as<A>(), PutMean<A>{kept});
          grid.join<V>(context, Squares<V, T, A>{in, kept}, none, partials.as<A>(), PutInverse<A>{kept, eps});
          cuda::launch(context, {"group_norm", grid.blocks, dim3(kThreads)}, normalize<V, T, A>, in, weight,
                       data_or_null<A>(beta), kept, grid.z, grid.tiling, out);
        },
        in, out);
  });
}

void group_norm_backward(CudaContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, Out dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  if (x.dim(-1) == 0) return;
  dispatch_floating(x.dtype(), "group_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const T *in = x.data<T>(), *gradient = dy.data<T>();
    T* out = data_or_null<T>(dx);
    const A *weight = data_or_null<A>(gamma), *kept = stats.data<A>();
    cuda::dispatch_width<T>(
        x.dim(-1),
        [&]<int V>() {
          const Grid grid(ChannelGroups(x, stats), V);
          const std::int64_t splits = grid.z.images * grid.tiling.splits;
          const Scratch partials = context.scratch(grid.partial_bytes<A>(2)),
                        means = context.scratch(static_cast<std::size_t>(2 * grid.z.images * grid.z.groups) *
                                                sizeof(A));
          if (x.numel() > 0)
            grid.join<V>(context, Gradients<V, T, A>{in, gradient, kept}, weight, partials.as<A>(),
                         PutMeans<A>{means.as<A>()});
          if (dgamma.tensor.defined() || dbeta.tensor.defined())
            cuda::launch_finish(context, "group_norm_parameters", partials.as<A>(), splits, grid.z.channels,
                                dbeta, dgamma);
          if (!out || x.numel() == 0) return;
          cuda::launch(context, {"group_norm_backward", grid.blocks, dim3(kThreads)}, write_dx<V, T, A>, in,
                       gradient, weight, kept, means.as<A>(), grid.z, grid.tiling, out);
        },
        in, gradient, out);
  });
}

}  // namespace athanor::kernels
