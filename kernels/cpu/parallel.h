#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/cpu/thread_team.h"

namespace athanor::cpu {

/// Number of simple elements below which a second thread costs more than it saves.
inline constexpr std::int64_t kGrain = 32768;

/// Splits [0, n) into one contiguous range per thread, each at least `grain` long, and calls f(begin, end) on
/// each. Ranges depend only on n, grain and the thread count. f must not throw.
template <class F>
void parallel_for(const CpuContext& context, std::int64_t n, std::int64_t grain, const F& f) {
  if (n <= 0) return;
  const std::int64_t wanted = (n + grain - 1) / std::max<std::int64_t>(grain, 1);
  [[maybe_unused]] const int threads = static_cast<int>(std::min<std::int64_t>(context.threads(), wanted));
#if defined(_OPENMP)
  if (threads > 1) {
    const std::int64_t share = (n + threads - 1) / threads;
    const auto run = [&](int thread) {
      const std::int64_t begin = thread * share;
      if (begin < n) f(begin, std::min(n, begin + share));
    };
    if (ThreadTeam* const team = context.team()) return team->run(threads, run);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; ++thread) run(thread);
    return;
  }
#endif
  f(std::int64_t{0}, n);
}

/// Number of threads worth starting for that many multiply-adds: one per half a million, which take a core
/// some 5 us.
inline int threads_for(const CpuContext& context, std::int64_t multiply_adds) {
  return static_cast<int>(std::clamp<std::int64_t>(multiply_adds >> 19, 1, context.threads()));
}

/// Calls f(slot, begin, end) for each of `slots` equal shares of [0, n), in parallel; a slot may own memory.
/// f must not throw.
template <class F>
void for_each_slot(const CpuContext& context, std::int64_t slots, std::int64_t n, const F& f) {
  parallel_for(context, slots, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t slot = first; slot < last; ++slot) f(slot, slot * n / slots, (slot + 1) * n / slots);
  });
}

}  // namespace athanor::cpu
