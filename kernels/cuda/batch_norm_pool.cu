#include "kernels/cuda/batch_norm_statistics.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/max_windows.h"
#include "kernels/scratch.h"

// Max pooling of ReLU(norm(x)): the stem of a residual network. The normalised tensor, the largest of the
// network, is in no memory. Windows that overlap normalise an element again, as often as they read it from
// the cache. Backward is batch_norm_backward.cu.

namespace athanor::kernels {
namespace {

using cuda::Channels;
using cuda::ChannelTile;
using cuda::ColumnTiling;
using cuda::data_or_null;
using cuda::Summed;
using cuda::Vec;
using cuda::WriteStatistics;

constexpr int kThreads = cuda::kNormThreads;

template <class T> struct Pooled {
  T* y;
  std::uint8_t* index;  // null: not needed
};

/// y and index of a block's tile of y: sizeof(T) bytes an element of x, sizeof(T) and the index of y; 5 FLOPs
/// an element of a window. kSide: see WindowReader. A block has a multiprocessor to itself: a window in
/// flight and what is known of its maxima do not fit in 64 registers.
template <int kSide, int V, class T, class A>
__global__ void __launch_bounds__(kThreads, 1)
    apply_and_pool(const T* __restrict__ x, cuda::WindowReader<kSide, V> reader, ColumnTiling tiling,
                   Summed<A> summed, WriteStatistics<A> write, Channels<A> parameters, Pooled<T> to) {
  __shared__ __align__(16) A values[3][cuda::kNormChannels];
  const auto at = tiling.thread_tile<V, kThreads>();
  const ChannelTile<V> tile(tiling, at);
  cuda::prepare<V>(tile, tiling, at.split == 0, summed, write, parameters, values);
  constexpr int E = ChannelTile<V>::kEach;
  cuda::for_each_rows<1>(at, [&](std::int64_t here, auto) {
    const auto window = reader[here / V];
    cuda::Maxima<V, A> best(window.first);
    reader.template for_each<kSide>(x, window, [&](const Vec<T, V>& in, std::int32_t place) {
      cuda::read_anew();
#pragma unroll
      for (int first = 0; first < V; first += E) {
        const auto mean = tile.load(values[0], at.column, first),
                   scale = tile.load(values[1], at.column, first),
                   beta = tile.load(values[2], at.column, first);
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const int k = first + i;
          const A pre = std::fma(cuda::widen(in, k) - mean[i], scale[i], beta[i]);
          best.offer(k, A(T(Relu::forward(pre))), place);  // rounded as the result of an op of its own
        }
      }
    });
    best.store(to.y + here, to.index ? to.index + here : nullptr);
  });
}

}  // namespace

void batch_norm_max_pool_training(CudaContext& context, const BatchNormTraining& args,
                                  const PoolWindows& windows, Out index) {
  if (args.x.numel() == 0) return;
  dispatch_floating(args.x.dtype(), "batch_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const T* in = args.x.data<T>();
    const Pooled<T> to{args.y.data<T>(), data_or_null<std::uint8_t>(index)};
    const auto run = [&]<int V>() {
      const ColumnTiling tiling = cuda::norm_tiling(args.x, V),
                         writers = cuda::norm_writer_tiling(context, cuda::norm_tiling(args.y, V), V);
      const Scratch memory =
          context.scratch(args.sums.defined() ? 0 : cuda::summed_elements(tiling) * sizeof(A));
      const auto summed = cuda::find_sums<V>(context, in, args.sums, tiling, memory.as<A>());
      const auto launch = [&]<int kSide>() {
        cuda::launch(context, {"batch_norm_max_pool", writers.blocks(), kThreads},
                     apply_and_pool<kSide, V, T, A>, in, cuda::WindowReader<kSide, V>(windows, args.y),
                     writers, summed, WriteStatistics<A>(args.eps, args.stats, args.running),
                     Channels<A>(args.stats, args.gamma, args.beta), to);
      };
      if constexpr (V > 1) {
        if (cuda::square_windows(windows, 3)) return launch.template operator()<3>();
      }
      launch.template operator()<0>();
    };
    cuda::dispatch_width<T>(args.x.dim(-1), run, in, to.y, to.index);
  });
}

}  // namespace athanor::kernels
