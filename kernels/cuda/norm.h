#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/norm.h"

// What the kernels of both normalisations share.

namespace athanor::cuda {

/// A GradientTarget as kernels see it.
template <class A> struct Target {
  A* to;
  bool accumulate;

  explicit Target(const kernels::GradientTarget& sink)
      : to(data_or_null<A>(sink.tensor)), accumulate(sink.write == Write::accumulate) {}
  __device__ __forceinline__ void put(std::int64_t c, double value) const {
    if (to) to[c] = A(accumulate ? static_cast<double>(to[c]) + value : value);
  }
};

/// One thread per channel.
inline Launch by_channel(const char* name, std::int64_t channels) {
  return {name, static_cast<unsigned>((channels + kColumnThreads - 1) / kColumnThreads), kColumnThreads};
}

}  // namespace athanor::cuda
