#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cuda/context.h"
#include "kernels/cuda/divide.h"
#include "kernels/cuda/vec.h"

// A thread for every few channels of a place of an image: what pooling and interpolation are made of.

namespace athanor::cuda {

inline constexpr int kPlaceThreads = 128;
inline constexpr int kPlaceResident = 6;  ///< blocks a multiprocessor holds at least: 80 registers a thread

/// The places of a tensor [N, H, W, C], V channels each, by flat index.
template <int V> struct Places {
  Divider height, width, channels;
  std::int64_t count;

  explicit Places(const Tensor& t)
      : height(t.shape()[1]), width(t.shape()[2]), channels(t.shape()[3] / V), count(t.numel() / V) {}

  struct Place {
    std::int64_t n, h, w, c;
  };
  __device__ __forceinline__ Place operator[](std::int64_t flat) const {
    const auto c = channels.divide(flat), w = width.divide(c.whole), h = height.divide(w.whole);
    return {h.whole, h.rest, w.rest, c.rest * V};
  }
};

/// Calls f(flat) for this thread's share of the places.
template <class F> __device__ __forceinline__ void for_each_place(std::int64_t count, const F& f) {
  const std::int64_t step = std::int64_t{gridDim.x} * kPlaceThreads;
  for (std::int64_t flat = std::int64_t{blockIdx.x} * kPlaceThreads + threadIdx.x; flat < count; flat += step)
    f(flat);
}

template <class Kernel, class... A>
void launch_over(const CudaContext& context, const char* name, std::int64_t places, Kernel kernel,
                 A&&... args) {
  launch(context, {name, blocks_for(context, places, kPlaceThreads, 32), kPlaceThreads}, kernel,
         std::forward<A>(args)...);
}

}  // namespace athanor::cuda
