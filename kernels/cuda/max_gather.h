#pragma once

#include <limits>

#include "kernels/cuda/places.h"
#include "kernels/pool.h"

// The gradient of max pooling where few windows overlap, as those of 3 x 3 by 2 do.

namespace athanor::cuda {

/// An axis for max_gather_few(), in 32-bit numbers.
struct FewWindows {
  Divider stride;
  std::int32_t window, padding, outputs;

  static constexpr int kMost = 2;  ///< windows over an input

  explicit FewWindows(const kernels::PoolAxis& axis)
      : stride(axis.stride),
        window(static_cast<std::int32_t>(axis.window)),
        padding(static_cast<std::int32_t>(axis.padding)),
        outputs(static_cast<std::int32_t>(axis.outputs)) {}
  static bool fit(const kernels::PoolAxis& axis) {
    constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
    return !axis.adaptive && axis.dilation == 1 && axis.window <= kMost * axis.stride &&
           axis.inputs + axis.padding <= kLimit && axis.stride <= kLimit / 2;
  }

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

/// max_gather() where two windows at most lie over an input along an axis, and every index is a 32-bit
/// number. A thread asks for all it reads before it uses any.
template <int V, class T, class I>
__global__ void __launch_bounds__(kPlaceThreads, kPlaceResident)
    max_gather_few(const T* __restrict__ dy, const I* __restrict__ index, FewWindows down, FewWindows across,
                   Places<V> places, T* __restrict__ dx) {
  using A = Accumulate<T>;
  constexpr int kMost = FewWindows::kMost;
  const auto count = static_cast<std::uint32_t>(places.count);
  const auto C = static_cast<std::int32_t>(places.channels.divisor()) * V;
  for (std::uint32_t flat = blockIdx.x * kPlaceThreads + threadIdx.x; flat < count;
       flat += gridDim.x * kPlaceThreads) {
    const auto c = places.channels.divide(flat), w = places.width.divide(c.whole),
               h = places.height.divide(w.whole);
    const auto rows = down.cover(h.rest), columns = across.cover(w.rest);
    const std::int32_t first =
        ((static_cast<std::int32_t>(h.whole) * down.outputs + rows.begin) * across.outputs + columns.begin) *
            C +
        static_cast<std::int32_t>(c.rest) * V;
    Vec<T, V> gradient[kMost][kMost];
    Vec<I, V> won[kMost][kMost];
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
#pragma unroll
      for (int q = 0; q < kMost; ++q) {
        if (p >= rows.count || q >= columns.count) continue;
        const std::int32_t from = first + (p * across.outputs + q) * C;
        gradient[p][q] = load<V>(dy + from);
        won[p][q] = load<V>(index + from);
      }
    }
    A sum[V] = {};
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      const std::int32_t r = rows.place - p * static_cast<std::int32_t>(down.stride.divisor());
#pragma unroll
      for (int q = 0; q < kMost; ++q) {
        if (p >= rows.count || q >= columns.count) continue;
        const std::int32_t s = columns.place - q * static_cast<std::int32_t>(across.stride.divisor());
        const auto place = static_cast<I>(r * across.window + s);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += won[p][q][k] == place ? widen(gradient[p][q], k) : A(0);
      }
    }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = T(sum[k]);
    store<V>(dx + std::int64_t{flat} * V, out);
  }
}

}  // namespace athanor::cuda
