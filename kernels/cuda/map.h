#pragma once

#include <algorithm>
#include <tuple>

#include "kernels/convert.h"
#include "kernels/cuda/architecture.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/vec.h"
#include "kernels/cuda/walk.h"
#include "kernels/numbers.h"

// y = f(x...) over operands whose element types may differ: bytes over bandwidth. Where all are dense, W
// elements of each a thread, W times the widest type being 16 bytes (or 8 elements), several of those in
// flight; else, of any strides and broadcast, one element at a time, by index.

namespace athanor::cuda {

inline constexpr int kMapThreads = 256;
/// Vectors of W elements that a thread reads before it writes: more would cost registers, and f64 spills.
template <int W> inline constexpr int kMapUnroll = W > 4 || W == 2 ? 2 : 4;

/// Ops that hold so many values that ptxas would spill them with as many vectors in flight.
template <class F> inline constexpr bool kIsHeavy = requires {
  requires F::IsHeavy::value;
};

template <int W, class F, class To, class... From>
__global__ void __launch_bounds__(kMapThreads) map_kernel(std::int64_t n, F f, To* y, const From*... x) {
  // Half as many on Blackwell, where ptxas would spill. The grid does not depend on it.
  constexpr int kUnroll = kIsBlackwell || kIsHeavy<F> ? (kMapUnroll<W> + 1) / 2 : kMapUnroll<W>;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kMapThreads, vectors = n / W;
  for (std::int64_t first = thread; first < vectors; first += step * kUnroll) {
    std::tuple<Vec<From, W>...> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = (first + u * step) * W;
      if (at / W < vectors) in[u] = std::tuple<Vec<From, W>...>(load<W>(x + at)...);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = (first + u * step) * W;
      if (at / W >= vectors) break;
      Vec<To, W> out;
#pragma unroll
      for (int i = 0; i < W; ++i)
        out[i] = std::apply([&](const auto&... vector) { return f(vector[i]...); }, in[u]);
      store<W>(y + at, out);
    }
  }
  if constexpr (W > 1) {  // the last few
    const std::int64_t at = vectors * W + thread;
    if (at < n) y[at] = f(x[at]...);
  }
}

template <class From, class To> struct Cast {
  __device__ __forceinline__ To operator()(From x) const { return kernels::convert<To>(x); }
};

/// Queues y[i] = f(x[i]...) for n elements, where every operand is aligned to 16 bytes (or to 8 elements);
/// false, and nothing, where not. y may be one of the x.
template <class F, class To, class... From>
bool map_aligned(const CudaContext& context, const char* name, std::int64_t n, const F& f, To* y,
                 const From*... x) {
  constexpr int W = 16 / static_cast<int>(std::max({std::size_t{2}, sizeof(To), sizeof(From)...}));
  if (!aligned<W>(y) || !(aligned<W>(x) && ...)) return false;
  if (n == 0) return true;
  const unsigned blocks = blocks_for(context, std::max<std::int64_t>(n / W / kMapUnroll<W>, 1), kMapThreads);
  launch(context, {name, blocks, kMapThreads}, map_kernel<W, F, To, From...>, n, f, y, x...);
  return true;
}

/// The same, wherever they lie.
template <class F, class To, class... From>
void map_dense(const CudaContext& context, const char* name, std::int64_t n, const F& f, To* y,
               const From*... x) {
  if (n == 0 || map_aligned(context, name, n, f, y, x...)) return;
  const unsigned blocks = blocks_for(context, std::max<std::int64_t>(n / kMapUnroll<1>, 1), kMapThreads);
  launch(context, {name, blocks, kMapThreads}, map_kernel<1, F, To, From...>, n, f, y, x...);
}

// Of any strides
// ----------------------------------------------------------------------------------------------

inline constexpr int kStridedThreads = 256;

// What F computes of elements of T, rounded once.
template <class To, class T, class F> struct Rounded {
  F f;
  template <class... X> __device__ __forceinline__ To operator()(X... x) const {
    return To(f(kernels::ComputeType<T>(x)...));
  }
};

template <class F, class... X, std::size_t... K>
__device__ __forceinline__ auto apply_at(const F& f, const typename Walk<sizeof...(X) + 1>::Offsets& offset,
                                         std::index_sequence<K...>, const X*... x) {
  return f(x[offset[K]]...);
}

/// A handful of FLOPs an element.
template <class To, class F, class... X>
__global__ void __launch_bounds__(kStridedThreads)
    map_strided(Walk<sizeof...(X) + 1> walk, F f, To* y, const X*... x) {
  const std::int64_t step = std::int64_t{gridDim.x} * kStridedThreads;
  for (std::int64_t flat = std::int64_t{blockIdx.x} * kStridedThreads + threadIdx.x; flat < walk.numel;
       flat += step) {
    const auto offset = walk.offsets(flat);
    y[offset[sizeof...(X)]] = apply_at(f, offset, std::make_index_sequence<sizeof...(X)>(), x...);
  }
}

/// y = f(x...) along a walk over x..., y. `strided` computes the same, where they are not dense and aligned.
template <class F, class Strided, class To, class... X>
void map_walk(const CudaContext& context, const char* name, const Walk<sizeof...(X) + 1>& walk, const F& f,
              const Strided& strided, To* y, const X*... x) {
  if (walk.numel == 0) return;
  if (walk.dense() && map_aligned(context, name, walk.numel, f, y, x...)) return;
  launch(context, {name, blocks_for(context, walk.numel, kStridedThreads), kStridedThreads},
         map_strided<To, Strided, X...>, walk, strided, y, x...);
}

/// The same of tensors of T, broadcast to y, which is dense and of To.
template <class T, class To = T, class F, class Strided, class... Tensors>
void map(const CudaContext& context, const char* name, const F& f, const Strided& strided, const Tensor& y,
         const Tensors&... x) {
  map_walk(context, name, walk_of<sizeof...(x) + 1>(y.shape(), x..., y), Rounded<To, T, F>{f},
           Rounded<To, T, Strided>{strided}, y.data<To>(), static_cast<const T*>(x.template data<T>())...);
}

}  // namespace athanor::cuda
