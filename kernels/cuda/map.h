#pragma once

#include <algorithm>
#include <tuple>

#include "kernels/convert.h"
#include "kernels/cuda/architecture.h"
#include "kernels/cuda/vec.h"

// y[i] = f(x[i]...) over dense operands whose element types may differ: bytes over bandwidth. W elements of
// each a thread, W times the widest type being 16 bytes (or 8 elements), several of those in flight.

namespace athanor::cuda {

inline constexpr int kMapThreads = 256;
/// Vectors of W elements that a thread reads before it writes: more would cost registers, and f64 spills.
template <int W> inline constexpr int kMapUnroll = W > 4 || W == 2 ? 2 : 4;

template <int W, class F, class To, class... From>
__global__ void __launch_bounds__(kMapThreads) map_kernel(std::int64_t n, F f, To* y, const From*... x) {
  // Half as many on Blackwell, where ptxas would spill. The grid does not depend on it.
  constexpr int kUnroll = kIsBlackwell ? (kMapUnroll<W> + 1) / 2 : kMapUnroll<W>;
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

}  // namespace athanor::cuda
