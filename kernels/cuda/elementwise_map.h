#pragma once

#include "kernels/cuda/map.h"
#include "kernels/cuda/walk.h"
#include "kernels/numbers.h"

// y = f(x...) over tensors of any strides, broadcast: by 16 bytes a thread where all are dense (map.h), else
// one element at a time, by index.

namespace athanor::cuda {

inline constexpr int kStridedThreads = 256;

// The operands of one op that are read.
template <class T, int N> struct Operands { const T* pointer[N]; };

// What F computes of elements of T, rounded once.
template <class To, class T, class F> struct Rounded {
  F f;
  template <class... X> __device__ __forceinline__ To operator()(X... x) const {
    return To(f(kernels::ComputeType<T>(x)...));
  }
};

template <class T, class F, int N, std::size_t... K>
__device__ __forceinline__ auto apply(const F& f, const T (&x)[N], std::index_sequence<K...>) {
  return f(x[K]...);
}

/// N operands of T, and the result: a handful of FLOPs an element.
template <class To, class T, int N, class F>
__global__ void __launch_bounds__(kStridedThreads)
    map_strided(Operands<T, N> operands, To* y, Walk<N + 1> walk, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * kStridedThreads;
  for (std::int64_t flat = std::int64_t{blockIdx.x} * kStridedThreads + threadIdx.x; flat < walk.numel;
       flat += step) {
    const auto offset = walk.offsets(flat);
    T x[N];
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = operands.pointer[k][offset[k]];
    y[offset[N]] = apply(f, x, std::make_index_sequence<N>());
  }
}

/// y = f(x...) for x of T, broadcast to y, which is dense and of To. `strided` computes the same, where they
/// are not dense.
template <class T, class To = T, class F, class Strided, class... Tensors>
void map(const CudaContext& context, const char* name, const F& f, const Strided& strided, const Tensor& y,
         const Tensors&... x) {
  constexpr int N = sizeof...(x);
  const Walk<N + 1> walk = walk_of<N + 1>(y.shape(), x..., y);
  if (walk.numel == 0) return;
  if (walk.dense() && map_aligned(context, name, walk.numel, Rounded<To, T, F>{f}, y.data<To>(),
                                  static_cast<const T*>(x.template data<T>())...))
    return;
  const Operands<T, N> operands{{x.template data<T>()...}};
  launch(context, {name, blocks_for(context, walk.numel, kStridedThreads), kStridedThreads},
         map_strided<To, T, N, Rounded<To, T, Strided>>, operands, y.data<To>(), walk,
         Rounded<To, T, Strided>{strided});
}

}  // namespace athanor::cuda
