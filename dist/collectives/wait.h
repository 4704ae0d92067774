#pragma once  // Explained in docs/when_a_rank_dies.md.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "dist/collectives/collective.h"

namespace athanor::dist {

/// A wait with a timeout. Every wait of dist/ uses it: MPI itself reports nothing when a rank is stopped or a
/// cable cut, and waits forever.
class StallTimeout {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StallTimeout(std::chrono::milliseconds limit, Clock::time_point now = Clock::now())
      : limit_(limit), since_(now) {}

  /// Call it while no progress is possible: it yields the core at first, then sleeps for some microseconds.
  /// Returns false if `progress` has not changed for the limit until `now`. Time in which this process was
  /// itself stopped does not count, so that it does not blame another.
  bool wait(std::int64_t progress, Clock::time_point now = Clock::now());

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point since_, last_ = since_;
  std::int64_t progress_ = -1;
  int idle_ = 0;
};

struct WaitOptions {
  /// Maximum time without progress; a slow collective that advances is not an error.
  std::chrono::milliseconds timeout{300'000};
  std::int64_t bucket = -1;                 ///< for messages: the bucket of gradients; -1: none
  const std::atomic<bool>* stop = nullptr;  ///< gives up when this becomes true
  bool last = true;                         ///< ends the record's entry; false: another part follows
  std::int64_t seq = -1;                    ///< of that entry; -1: the newest
  /// Called again and again once the collective is queued(): the next one may be queued behind it.
  const std::function<void()>* meanwhile = nullptr;
};

/// Collective::advance(), adding the operation's name and bucket to the error if a rank is lost. Records
/// progress, and calls the Session's on_failure on failure, but not if stopped.
bool advance(Collective& collective, Transport& transport, const WaitOptions& options = {});

/// Advances a started collective until it is done. Throws PeerLostError naming the operation, the bucket and
/// the rank whose message is missing.
void finish(Collective& collective, Transport& transport, const WaitOptions& options = {});

}  // namespace athanor::dist
