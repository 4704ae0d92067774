#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/norm_plan.h"
#include "kernels/norm.h"

// What the kernels of all norms share.

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

template <class A>
__global__ void __launch_bounds__(1024)
    finish_parameters(const A* partials, std::int64_t splits, std::int64_t channels, Target<A> first,
                      Target<A> second) {
  const auto total = total_columns(partials, splits, channels);
  if (!total.valid) return;
  first.put(total.channel, total.first);
  second.put(total.channel, total.second);
}
/// Adds up partials [splits, 2, C] to the gradients of two parameters.
template <class A>
void launch_finish(const CudaContext& context, const char* name, const A* partials, std::int64_t splits,
                   std::int64_t channels, const kernels::GradientTarget& first,
                   const kernels::GradientTarget& second) {
  launch(context, total_launch(name, splits, channels), finish_parameters<A>, partials, splits, channels,
         Target<A>(first), Target<A>(second));
}

/// One thread per channel.
inline Launch by_channel(const char* name, std::int64_t channels) {
  return {name, static_cast<unsigned>((channels + kColumnThreads - 1) / kColumnThreads), kColumnThreads};
}

}  // namespace athanor::cuda
