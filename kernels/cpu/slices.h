#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parallel.h"
#include "kernels/detail/axis_shape.h"

namespace athanor::cpu {

/// Number of adjacent slices processed together, one per vector lane.
inline constexpr std::int64_t kSlices = 128;

/// Calls f(outer, first, width) for blocks of at most kSlices adjacent slices, [first, first + width) of
/// `inner`, in parallel and compiled as in vectorize_if<kFastType<T>>().
template <class T, class F>
void for_each_slice(const CpuContext& context, const AxisShape& shape, const F& f) {
  const std::int64_t blocks = (shape.inner + kSlices - 1) / kSlices;
  const std::int64_t work = std::max<std::int64_t>(1, shape.n * std::min(shape.inner, kSlices));
  parallel_for(context, shape.outer * blocks, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 vectorize_if<kFastType<T>>([&] {
                   for (std::int64_t task = begin; task < end; ++task) {
                     const std::int64_t first = task % blocks * kSlices;
                     f(task / blocks, first, std::min(shape.inner - first, kSlices));
                   }
                 });
               });
}

}  // namespace athanor::cpu
