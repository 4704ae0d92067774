#pragma once

#include "kernels/cuda/places.h"
#include "kernels/pool_ops.h"

// The gradient of max pooling where few windows overlap, as those of 3 x 3 by 2 do: few_windows(), and every
// index is a 32-bit number.

namespace athanor::cuda {

/// An axis, in 32-bit numbers.
struct FewWindows {
  Divider stride;
  std::int32_t window, padding, outputs;

  explicit FewWindows(const kernels::PoolAxis& axis)
      : stride(axis.stride),
        window(static_cast<std::int32_t>(axis.window)),
        padding(static_cast<std::int32_t>(axis.padding)),
        outputs(static_cast<std::int32_t>(axis.outputs)) {}

  struct Cover {
    std::int32_t begin, count, place;  // of the input in the first window
  };
  __device__ __forceinline__ Cover cover(std::uint32_t at) const {
    const std::uint32_t last = at + static_cast<std::uint32_t>(padding),
                        size = static_cast<std::uint32_t>(window);
    const auto end = static_cast<std::int32_t>(stride.divide(last).whole) + 1;
    const auto begin = last < size ? 0 : static_cast<std::int32_t>(stride.divide(last - size).whole) + 1;
    return {begin, (end < outputs ? end : outputs) - begin,
            static_cast<std::int32_t>(last) - begin * static_cast<std::int32_t>(stride.divisor())};
  }
};

/// The gradients of places of x, V channels each.
template <int V> struct FewWindowsGather {
  FewWindows down, across;
  Places<V> places;  ///< of x

  FewWindowsGather(const kernels::PoolWindows& windows, const Tensor& x)
      : down(windows.h), across(windows.w), places(x) {}

  /// dx at the place: the sum of dy over the windows whose maximum is there, rounded once. A thread asks for
  /// what it needs of kRows rows of windows, of kFewWindows, before it uses any of it.
  template <int kRows, class T, class I>
  __device__ __forceinline__ Vec<T, V> at(std::uint32_t flat, const T* dy, const I* index) const {
    using A = Accumulate<T>;
    constexpr int kMost = kernels::kFewWindows;
    const auto C = static_cast<std::int32_t>(places.channels.divisor()) * V;
    const auto c = places.channels.divide(flat), w = places.width.divide(c.whole),
               h = places.height.divide(w.whole);
    const auto rows = down.cover(h.rest), columns = across.cover(w.rest);
    const std::int32_t first =
        ((static_cast<std::int32_t>(h.whole) * down.outputs + rows.begin) * across.outputs + columns.begin) *
            C +
        static_cast<std::int32_t>(c.rest) * V;
    A sum[V] = {};
#pragma unroll
    for (int top = 0; top < kMost; top += kRows) {
      Vec<T, V> gradient[kRows][kMost];
      Vec<I, V> won[kRows][kMost];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int q = 0; q < kMost; ++q) {
          if (top + i >= rows.count || q >= columns.count) continue;
          const std::int32_t from = first + ((top + i) * across.outputs + q) * C;
          gradient[i][q] = load<V>(dy + from);
          won[i][q] = load<V>(index + from);
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const std::int32_t r = rows.place - (top + i) * static_cast<std::int32_t>(down.stride.divisor());
#pragma unroll
        for (int q = 0; q < kMost; ++q) {
          if (top + i >= rows.count || q >= columns.count) continue;
          const std::int32_t s = columns.place - q * static_cast<std::int32_t>(across.stride.divisor());
          const auto place = static_cast<I>(r * across.window + s);
#pragma unroll
          for (int k = 0; k < V; ++k) sum[k] += won[i][q][k] == place ? widen(gradient[i][q], k) : A(0);
        }
      }
    }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = T(sum[k]);
    return out;
  }
};

template <int V, class T, class I>
__global__ void __launch_bounds__(kPlaceThreads, kPlaceResident)
    max_gather_few(const T* __restrict__ dy, const I* __restrict__ index, FewWindowsGather<V> gather,
                   T* __restrict__ dx) {
  const auto count = static_cast<std::uint32_t>(gather.places.count);
  for (std::uint32_t flat = blockIdx.x * kPlaceThreads + threadIdx.x; flat < count;
       flat += gridDim.x * kPlaceThreads)
    store<V>(dx + std::int64_t{flat} * V, gather.template at<kernels::kFewWindows>(flat, dy, index));
}

}  // namespace athanor::cuda
