#include "kernels/copy.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/conv_views.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/divide.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/grid_partition.h"
#include "kernels/cuda/vec.h"
#include "kernels/scratch.h"

// Depthwise convolution does 2 R S FLOPs on each number of x and y: it is bound by memory. Threads lie along
// the channels, 16 bytes of them each; the R S reads of a pixel come from caches but for the first.

namespace athanor::cuda {
namespace {

constexpr int kThreads = kDepthwiseThreads;
// Blocks a multiprocessor holds at least, where ptxas would spill to make room for more; 0: as many as it
// finds.
constexpr int kResidentForward = 4;
template <int W> inline constexpr int kResidentBackward = W == 8 ? 3 : 0;

/// One thread per output pixel and W channels. W > 1 where there is one output channel per input channel.
template <class T, int W>
__global__ void __launch_bounds__(kThreads, kResidentForward)
    forward_kernel(DepthwiseSizes z, Unravel unravel, std::uint32_t count, const T* x, const T* filters,
                   Finish<T> finish) {
  using A = Accumulate<T>;
  for (std::uint32_t index = blockIdx.x * kThreads + threadIdx.x; index < count;
       index += gridDim.x * kThreads) {
    const auto at = unravel(index);
    const int k = at.packet * W,
              c = static_cast<int>(z.channels_of.divide(static_cast<std::uint32_t>(k)).whole);
    const T* const image = x + std::int64_t{at.image} * z.h * z.w * z.c + c;
    A sums[W];
#pragma unroll
    for (int v = 0; v < W; ++v) sums[v] = 0;
    for (int r = 0; r < z.r; ++r) {
      const int row = at.row * z.stride_h - z.padding_h + r * z.dilation_h;
      if (row < 0 || row >= z.h) continue;
#pragma unroll 4
      for (int s = 0; s < z.s; ++s) {
        const int column = at.column * z.stride_w - z.padding_w + s * z.dilation_w;
        if (column < 0 || column >= z.w) continue;
        const auto pixel = load<W>(image + (std::int64_t{row} * z.w + column) * z.c);
        const auto tap = load<W>(filters + std::int64_t{r * z.s + s} * z.k + k);
#pragma unroll
        for (int v = 0; v < W; ++v) sums[v] = std::fma(A(pixel[v]), A(tap[v]), sums[v]);
      }
    }
    finish.template packet<W>(std::int64_t{index} * W, k, sums);
  }
}

/// One thread per pixel of x and W channels: the outputs that saw it, through every tap.
template <class T, int W>
__global__ void __launch_bounds__(kThreads, kResidentBackward<W>)
    backward_data_kernel(DepthwiseSizes z, Unravel unravel, std::uint32_t count, const T* dy,
                         const T* filters, Finish<T> finish) {
  using A = Accumulate<T>;
  for (std::uint32_t index = blockIdx.x * kThreads + threadIdx.x; index < count;
       index += gridDim.x * kThreads) {
    const auto at = unravel(index);
    const int first = at.packet * W * z.per_channel;
    const T* const image = dy + std::int64_t{at.image} * z.p * z.q * z.k;
    A sums[W];
#pragma unroll
    for (int v = 0; v < W; ++v) sums[v] = 0;
    for (int r = 0; r < z.r; ++r) {
      const int top = at.row + z.padding_h - r * z.dilation_h;
      const auto [p, beside] = z.by_stride_h.divide(static_cast<std::uint32_t>(top < 0 ? 0 : top));
      if (top < 0 || p >= static_cast<std::uint32_t>(z.p) || beside != 0) continue;
#pragma unroll 4
      for (int s = 0; s < z.s; ++s) {
        const int left = at.column + z.padding_w - s * z.dilation_w;
        const auto [q, off] = z.by_stride_w.divide(static_cast<std::uint32_t>(left < 0 ? 0 : left));
        if (left < 0 || q >= static_cast<std::uint32_t>(z.q) || off != 0) continue;
        for (int k = first; k < first + z.per_channel; ++k) {
          const auto gradient = load<W>(image + (std::int64_t{p} * z.q + q) * z.k + k);
          const auto tap = load<W>(filters + std::int64_t{r * z.s + s} * z.k + k);
#pragma unroll
          for (int v = 0; v < W; ++v) sums[v] = std::fma(A(gradient[v]), A(tap[v]), sums[v]);
        }
      }
    }
    finish.template packet<W>(std::int64_t{index} * W, 0, sums);
  }
}

// A 3 x 3 filter's sums fit in registers.
constexpr int kTaps = 9;

/// Grid: groups of channels, pieces of the output pixels. A block's threads lie `across` (a power of two) by
/// kThreads / across; each adds up W channels of every (kThreads / across)-th pixel, kTaps taps at a time: dy
/// is read once for these. partials [piece, tap, k].
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    backward_weights_kernel(DepthwiseSizes z, Unravel unravel, std::uint32_t pixels, int across, const T* x,
                            const T* dy, Accumulate<T>* partials) {
  using A = Accumulate<T>;
  __shared__ __align__(16) A shared[kThreads * W];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % across;
  const int height = kThreads / across;
  const int k = (static_cast<int>(blockIdx.x) * across + lane) * W;
  const int c = static_cast<int>(z.channels_of.divide(static_cast<std::uint32_t>(k)).whole);
  for (int first = 0; first < z.r * z.s; first += kTaps) {
    A sums[kTaps][W];
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
      for (int v = 0; v < W; ++v) sums[tap][v] = 0;
    if (k < z.k) {
      for (std::uint32_t pixel = blockIdx.y * height + thread / across; pixel < pixels;
           pixel += gridDim.y * height) {
        const auto at = unravel(pixel);
        const auto gradient = load<W>(dy + std::int64_t{pixel} * z.k + k);
        const T* const image = x + std::int64_t{at.image} * z.h * z.w * z.c + c;
        int r = first / z.s, s = first % z.s;
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          const int row = at.row * z.stride_h - z.padding_h + r * z.dilation_h,
                    column = at.column * z.stride_w - z.padding_w + s * z.dilation_w;
          if (r < z.r && row >= 0 && row < z.h && column >= 0 && column < z.w) {
            const auto in = load<W>(image + (std::int64_t{row} * z.w + column) * z.c);
#pragma unroll
            for (int v = 0; v < W; ++v) sums[tap][v] = std::fma(A(in[v]), A(gradient[v]), sums[tap][v]);
          }
          if (++s == z.s) s = 0, ++r;
        }
      }
    }
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if (first + tap >= z.r * z.s) break;
      add_up_columns<kThreads>(sums[tap], across, shared);
      __syncthreads();
      if (thread < across && k < z.k) {
#pragma unroll
        for (int v = 0; v < W; ++v)
          partials[(std::int64_t{blockIdx.y} * z.r * z.s + first + tap) * z.k + k + v] = sums[tap][v];
      }
    }
  }
}

/// dw [K, taps] from partials [pieces, taps, K].
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_pieces(const Accumulate<T>* partials, int pieces, int k, int taps, Finish<T> finish) {
  for (int at = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); at < k * taps;
       at += static_cast<int>(gridDim.x) * kThreads) {
    Accumulate<T> sum = 0;
    for (int piece = 0; piece < pieces; ++piece) sum += partials[std::int64_t{piece} * k * taps + at];
    finish(std::int64_t{at % k} * taps + at / k, 0, sum);
  }
}

/// Calls f.template operator()<W>() with the channels a thread takes at a time.
template <class T, class F> void with_width(const ConvSize& z, const T* x, const T* y, const F& f) {
  if (depthwise_width(z, kVec<T>) > 1 && aligned<kVec<T>>(x, y)) {
    f.template operator()<kVec<T>>();
  } else {
    f.template operator()<1>();
  }
}

template <class T> void depthwise_forward(const CudaContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  const T *const x = call.x.data<T>(), *const bias = data_or_null<T>(call.bias);
  T* const y = call.y.data<T>();
  const Scratch scratch = context.scratch(filter_elements(z) * sizeof(T));
  const T* const filters = transpose_filters(context, z, call.w.data<T>(), scratch);
  with_width<T>(z, x, y, [&]<int W>() {
    const std::int64_t packets = z.k / W;
    for_images(z.n, z.p * z.q * packets, call.most, [&](std::int64_t first, std::int64_t images) {
      const std::int64_t count = images * z.p * z.q * packets;
      const Finish<T> finish{y + first * z.p * z.q * z.k, false, bias, call.activation()};
      launch(context, {kernel_name(call.pass), blocks_for(context, count, kThreads), kThreads},
             forward_kernel<T, W>, DepthwiseSizes(z), Unravel(z.p, z.q, packets),
             static_cast<std::uint32_t>(count), x + first * z.h * z.w * z.c, filters, finish);
    });
  });
}

template <class T>
void depthwise_backward_data(const CudaContext& context, const ConvCall& call, const Tensor& to) {
  const ConvSize& z = call.z;
  const T* const dy = call.y.data<T>();
  T* const dx = to.data<T>();
  const Scratch scratch = context.scratch(filter_elements(z) * sizeof(T));
  const T* const filters = transpose_filters(context, z, call.w.data<T>(), scratch);
  with_width<T>(z, dy, dx, [&]<int W>() {
    const std::int64_t packets = z.c / W;
    for_images(z.n, z.h * z.w * packets, call.most, [&](std::int64_t first, std::int64_t images) {
      const std::int64_t count = images * z.h * z.w * packets;
      const Finish<T> finish{dx + first * z.h * z.w * z.c, false, nullptr};
      launch(context, {kernel_name(call.pass), blocks_for(context, count, kThreads), kThreads},
             backward_data_kernel<T, W>, DepthwiseSizes(z), Unravel(z.h, z.w, packets),
             static_cast<std::uint32_t>(count), dy + first * z.p * z.q * z.k, filters, finish);
    });
  });
}

template <class T, class D>
void depthwise_backward_weights(const CudaContext& context, const ConvCall& call) {
  using A = Accumulate<T>;
  const ConvSize& z = call.z;
  const T *const x = call.x.data<T>(), *const dy = call.y.data<T>();
  const int taps = static_cast<int>(z.r * z.s);
  with_width<T>(z, x, dy, [&]<int W>() {
    for_images(z.n, z.p * z.q, call.most, [&](std::int64_t first, std::int64_t images) {
      const std::int64_t pixels = images * z.p * z.q;
      const ColumnCut cut = column_sums_cut(pixels, z.k, W);
      const auto splits = static_cast<unsigned>(cut.splits);
      const Scratch scratch = context.scratch(splits * filter_elements(z) * sizeof(A));
      launch(context, {kernel_name(call.pass), dim3(static_cast<unsigned>(cut.tiles), splits), kThreads},
             backward_weights_kernel<T, W>, DepthwiseSizes(z), Unravel(z.p, z.q, 1),
             static_cast<std::uint32_t>(pixels), 1 << cut.shift, x + first * z.h * z.w * z.c,
             dy + first * z.p * z.q * z.k, scratch.as<A>());
      D* const dw = call.w.data<D>();
      const Finish<T> finish{dw, !std::is_same_v<T, D>, nullptr, Activation::none,
                             call.accumulates() || first > 0 ? dw : nullptr};
      launch(context, {kernel_name(call.pass), blocks_for(context, z.k * taps, kThreads), kThreads},
             add_pieces<T>, scratch.as<A>(), static_cast<int>(splits), static_cast<int>(z.k), taps, finish);
    });
  });
}

}  // namespace

bool depthwise_conv(CudaContext& context, const ConvCall& call) {
  check_sizes(call);
  check_images(call.z);
  // Its kernel does not add to dx.
  const bool apart = call.pass == ConvPass::backward_data && call.accumulates();
  const Tensor dx = apart ? empty_like(call.x) : call.x;
  dispatch_floating(call.x.dtype(), "conv2d", [&]<class T>() {
    switch (call.pass) {
      case ConvPass::forward: return depthwise_forward<T>(context, call);
      case ConvPass::backward_data: return depthwise_backward_data<T>(context, call, dx);
      case ConvPass::backward_weights: break;
    }
    if (call.w.dtype() == call.x.dtype()) return depthwise_backward_weights<T, T>(context, call);
    depthwise_backward_weights<T, Accumulate<T>>(context, call);
  });
  if (apart) kernels::add_into(context, dx, call.x);
  return true;
}

}  // namespace athanor::cuda
