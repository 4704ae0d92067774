#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/cpu/deferred_signals.h"
#include "kernels/cpu/thread_team.h"

namespace athanor::cpu {

/// Number of simple elements below which a second thread costs more than it saves.
inline constexpr std::int64_t kGrain = 32768;

/// A thread's first piece, and the direction of the next ones.
enum class From { begin, end };

/// [0, n) as one contiguous share per thread, each in pieces. A thread takes those of its own share, whose
/// data may still be in its core's cache, then pieces that other threads have left: one whose core another
/// process or virtual machine slows down does not keep the others waiting.
class Shares {
 public:
  /// Pieces have at least `grain` items.
  Shares(std::int64_t n, int threads, std::int64_t grain, From from = From::begin)
      : count_(std::min(threads, kMost)), from_(from) {
    const std::int64_t size = (n + count_ - 1) / count_;
    piece_ = count_ == 1 ? size : std::max((size + kPieces - 1) / kPieces, grain);
    for (int i = 0; i < count_; ++i) shares_[i] = {0, std::min(n, i * size), std::min(n, (i + 1) * size)};
  }

  /// Whether a piece is left for `thread`.
  bool any_left(int thread) {
    for (int i = 0; i < std::min(count_, kVisits); ++i) {
      Share& share = shares_[(thread + i) % count_];
      if (std::atomic_ref(share.taken).load(std::memory_order_relaxed) < share.end - share.begin) return true;
    }
    return false;
  }
  /// Calls f(begin, end) on each piece that `thread` takes.
  template <class F> void each(int thread, const F& f) {
    for (int i = 0; i < std::min(count_, kVisits); ++i) {
      Share& share = shares_[(thread + i) % count_];
      const std::int64_t size = share.end - share.begin;
      const std::atomic_ref taken(share.taken);
      while (taken.load(std::memory_order_relaxed) < size) {
        const std::int64_t first = taken.fetch_add(piece_, std::memory_order_relaxed),
                           last = std::min(first + piece_, size);
        if (first >= size) break;
        if (from_ == From::begin) {
          f(share.begin + first, share.begin + last);
        } else {
          f(share.end - last, share.end - first);
        }
      }
    }
  }

 private:
  static constexpr int kPieces = 8;  ///< of a share
  static constexpr int kMost = 256;  ///< shares: more threads have some in common
  static constexpr int kVisits = 8;  ///< shares that a thread looks at: each may take a cache miss

  struct alignas(64) Share {  // a cache line, since another thread takes from the next
    std::int64_t taken, begin, end;
  };
  std::array<Share, kMost> shares_;  // those in use are written
  int count_;
  From from_;
  std::int64_t piece_;
};

/// Calls f(0), ..., f(threads - 1), each once, on up to that many threads. f must not throw.
template <class F> void on_threads(const CpuContext& context, int threads, const F& f) {
  if (threads <= 1) {
    for (int thread = 0; thread < threads; ++thread) f(thread);
    return;
  }
  if (ThreadTeam* const team = context.team()) return team->run(threads, f);
  const DeferredSignals deferred(threads);  // OpenMP's threads, which may start here, are oneDNN's as well
#if defined(_OPENMP)
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int thread = 0; thread < threads; ++thread) f(thread);
}

/// Calls f(begin, end) on pieces of [0, n), each at least `grain` long but the last of a share. A thread may
/// get several. f must not throw.
template <class F>
void parallel_for(const CpuContext& context, std::int64_t n, std::int64_t grain, const F& f,
                  From from = From::begin) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const int threads = static_cast<int>(std::min<std::int64_t>(context.threads(), (n + grain - 1) / grain));
  if (threads <= 1) return f(std::int64_t{0}, n);
  Shares shares(n, threads, grain, from);
  on_threads(context, threads, [&](int thread) { shares.each(thread, f); });
}

/// Number of threads worth starting for that many multiply-adds: one per half a million, which take a core
/// some 5 us.
inline int threads_for(const CpuContext& context, std::int64_t multiply_adds) {
  return static_cast<int>(std::clamp<std::int64_t>(multiply_adds >> 19, 1, context.threads()));
}

/// Calls f(slot, each_piece) for so many slots, at most one per thread, in parallel; a slot may own memory.
/// each_piece(g) calls g(begin, end) on pieces, which are [0, n) over all slots. Which slot gets which
/// differs from call to call; one that comes too late for any is left out. f and g must not throw.
template <class F>
void for_each_slot(const CpuContext& context, std::int64_t slots, std::int64_t n, const F& f) {
  if (slots <= 0 || n <= 0) return;
  Shares shares(n, static_cast<int>(slots), 1);
  on_threads(context, static_cast<int>(slots), [&](int slot) {
    if (!shares.any_left(slot)) return;
    f(static_cast<std::int64_t>(slot), [&](const auto& g) { shares.each(slot, g); });
  });
}

}  // namespace athanor::cpu
