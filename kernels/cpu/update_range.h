#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/update_ops.h"

// The iteration of updates over the ranges of a table.

namespace athanor::cpu {

using kernels::UpdateRange;
using kernels::UpdateTable;

inline std::span<const UpdateRange> ranges_of(const UpdateTable& table) {
  if (table.count == 0) return {};
  return {reinterpret_cast<const UpdateRange*>(table.ranges.raw_data()),
          static_cast<std::size_t>(table.count)};
}

/// Calls f(range) for each, in parallel, with similar numbers of elements per thread.
template <class F> void for_each_range(CpuContext& context, const UpdateTable& table, const F& f) {
  const std::span<const UpdateRange> ranges = ranges_of(table);
  if (ranges.empty()) return;
  const std::int64_t first = ranges.front().start;  // not 0 in the table of one parameter
  cpu::parallel_for(context, table.elements, cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    auto at = std::partition_point(ranges.begin(), ranges.end(),
                                   [&](const UpdateRange& range) { return range.start - first < begin; });
    for (; at != ranges.end() && at->start - first < end; ++at) f(*at);
  });
}

inline void count_updates(const UpdateTable& table) {
  auto* steps = table.steps.data<std::int64_t>();
  for (const UpdateRange& at : ranges_of(table)) steps[at.member] += at.last;
}

/// Does nothing, for updates without averages.
struct NoAverage {
  void operator()(float, float&) const {}
};

/// For values other than gradients.
struct Unscaled {
  float operator()(float x) const { return x; }
};

/// One pass over a range: reads the gradient, updates master, state and average, writes the compute copy.
template <class G, class W, class Op, class Scale, class Average, class... State>
void update_range(const Op& op, const Scale& scale, const Average& move, std::int64_t n,
                  const G* __restrict gradient, W* __restrict weight, float* __restrict master,
                  float* __restrict average, State* __restrict... state) {
  // By value: for the compiler, a reference to op's floats could alias what the loop writes. ivdep: otherwise
  // it would check every pair of streams for overlap, and give up at more than ten pairs.
  cpu::vectorize([=] {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      float w = master[i];
      op(scale(float(gradient[i])), w, state[i]...);
      master[i] = w;
      if constexpr (!std::is_same_v<W, float>) weight[i] = W(w);
      if constexpr (!std::is_same_v<Average, NoAverage>) move(w, average[i]);
    }
  });
}

/// Calls f(op, averages) with the update of a table's averages.
template <class F> void with_average(const CpuContext& context, const UpdateTable& table, const F& f) {
  if (table.averages.defined())
    return f(average_op(*context.step(), table.average), table.averages.data<float>());
  f(NoAverage(), static_cast<float*>(nullptr));
}

/// Sixteen lanes of f64, added at the end in a fixed order, so the vector width does not matter. An infinity
/// or NaN among the values makes the sum infinite or NaN; finite f32 values cannot overflow it.
template <class G> double sum_of_squares(const G* values, std::int64_t n) {
  constexpr int kLanes = 16;
  double result = 0;
  cpu::vectorize([&] {
    double lane[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) {
        const double value = float(values[i + k]);
        lane[k] += value * value;
      }
    }
    for (int k = 0; i < n; ++i, ++k) lane[k] += double(float(values[i])) * double(float(values[i]));
    double sum = 0;
    for (int k = 0; k < kLanes; ++k) sum += lane[k];
    result = sum;
  });
  return result;
}

}  // namespace athanor::cpu
