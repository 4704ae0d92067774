#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parallel.h"
#include "kernels/detail/axis_shape.h"

namespace athanor::cpu {

/// Number of adjacent slices processed together, one per vector lane.
inline constexpr std::int64_t kSlices = 128;

/// Calls f(first element, first slice, width) for blocks of at most kSlices adjacent slices, in parallel and
/// compiled as in vectorize_if<kFastType<T>>(). Slices are numbered outer * inner + j.
template <class T, class F>
void for_each_slice(const CpuContext& context, const AxisShape& shape, const F& f) {
  const std::int64_t blocks = (shape.inner + kSlices - 1) / kSlices;
  const std::int64_t grain = grain_of(shape.n * std::min(shape.inner, kSlices));
  for_each_task<kFastType<T>>(context, shape.outer * blocks, grain, [&](std::int64_t task) {
    const std::int64_t outer = task / blocks, first = task % blocks * kSlices;
    f(outer * shape.n * shape.inner + first, outer * shape.inner + first,
      std::min(shape.inner - first, kSlices));
  });
}

}  // namespace athanor::cpu
